// The token of this browser tab. It is kept in sessionStorage only, and sent in a header only.

import type { Me } from "./types";

/** The server marks the page of `tradewind console`: it is for the transfers of the user who runs the server. */
export const isOwn = document.documentElement.hasAttribute("data-own");

const KEY = "tradewind-token";

export const session = $state<{ token: string | null; me: Me | null }>({
  token: sessionStorage.getItem(KEY),
  me: null,
});

export function signIn(token: string, me: Me): void {
  sessionStorage.setItem(KEY, token);
  session.token = token;
  session.me = me;
}

export function signOut(): void {
  sessionStorage.removeItem(KEY);
  session.token = null;
  session.me = null;
  location.hash = "#/transfers";
}

export function may(scope: string): boolean {
  return session.me?.scopes.includes(scope) ?? false;
}
