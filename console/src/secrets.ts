// The parts of the secret of a connection, by the kind of its store.

import type { Connection } from "./types";

export type Part = [name: string, label: string, isSecret: boolean];

const KEY: Part[] = [
  ["access_key_id", "Access key id", false],
  ["secret_access_key", "Secret access key", true],
];

export const PARTS: Record<Connection["kind"], Part[]> = {
  s3: [...KEY, ["session_token", "Session token, if temporary", true]],
  r2: KEY,
  gs: [["service_account", "JSON file of the service account", true]],
  az: [
    ["account_key", "Account key", true],
    ["sas", "Or shared access signature", true],
  ],
};

/** Return the kind of store of a place; null for an unknown one. */
export function kindOfPlace(place: string): Connection["kind"] | null {
  const kind = place.trim().split("://")[0] ?? "";
  return kind in PARTS ? (kind as Connection["kind"]) : null;
}

/** Return the parts that were filled in, as the API wants them. */
export function secretOf(kind: Connection["kind"], values: Record<string, string>): Record<string, string> {
  const filled = PARTS[kind].map(([name]) => [name, (values[name] ?? "").trim()] as const).filter(([, text]) => text !== "");
  return Object.fromEntries(filled);
}
