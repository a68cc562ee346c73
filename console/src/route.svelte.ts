// The page that the address names: `#/transfers`, `#/transfers/JOB`, `#/new`, and so on.

interface Route {
  page: string;
  item: string | null;
  /** Code of `tradewind console` that signs in, until it is used. */
  code: string | null;
}

const CODE = "#code=";

export const route = $state<Route>(parse());

addEventListener("hashchange", () => Object.assign(route, parse()));

// A token in an address never signs anybody in: a link could make users work, unnoticed, with the token of somebody else.
// The code of a user's own console can: all its codes sign in the same user. Both are removed from the address, so that
// they do not stay in the history.
function parse(): Route {
  const code = location.hash.startsWith(CODE) ? location.hash.slice(CODE.length) : null;
  if (code !== null || location.hash.startsWith("#token=")) history.replaceState(null, "", "#/transfers");
  const [page, item] = location.hash.replace(/^#\/?/, "").split("/");
  return { page: page || "transfers", item: item || null, code };
}
