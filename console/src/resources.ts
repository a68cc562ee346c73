// Kinds of resources that a service admin limits or closes, in words.

export const LIMITED: [string, string][] = [
  ["store-in", "into a store"],
  ["store-out", "out of a store"],
  ["link", "link"],
  ["site", "site"],
  ["tenant", "tenant"],
];

export const CLOSED: [string, string][] = [["store", "store"], ...LIMITED];

export function kindOf(kind: string): string {
  return CLOSED.find(([name]) => name === kind)?.[1] ?? kind;
}
