// The page that the address names: `#/transfers`, `#/transfers/JOB`, `#/new`, `#/tenants`.

export const route = $state<{ page: string; item: string | null }>(parse());

addEventListener("hashchange", () => Object.assign(route, parse()));

function parse(): { page: string; item: string | null } {
  const [page, item] = location.hash.replace(/^#\/?/, "").split("/");
  return { page: page || "transfers", item: item || null };
}
