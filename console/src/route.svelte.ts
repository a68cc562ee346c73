// The page that the address names: `#/transfers`, `#/transfers/JOB`, `#/new`, and so on.

export const route = $state<{ page: string; item: string | null }>(parse());

addEventListener("hashchange", () => Object.assign(route, parse()));

// An address never signs anybody in: a link could make users work, unnoticed, with the token of somebody else. A token
// in the address is removed, so that it does not stay in the history.
function parse(): { page: string; item: string | null } {
  if (location.hash.startsWith("#token=")) history.replaceState(null, "", "#/transfers");
  const [page, item] = location.hash.replace(/^#\/?/, "").split("/");
  return { page: page || "transfers", item: item || null };
}
