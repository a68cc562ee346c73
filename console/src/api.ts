// Requests to the service. Each error is a `Problem` with the server's own words.

import { session, signOut } from "./session.svelte";

export class Problem extends Error {
  constructor(
    readonly status: number,
    readonly detail: string,
    readonly hint: string | null,
    readonly fields: { field: string; message: string }[],
  ) {
    super(detail);
  }

  /** Return the message for a field of the request's body, or null. */
  of(field: string): string | null {
    const found = this.fields.find((one) => one.field === `body.${field}` || one.field.startsWith(`body.${field}.`));
    return found?.message ?? null;
  }
}

interface Options {
  method?: string;
  body?: unknown;
  headers?: Record<string, string>;
  token?: string;
  signal?: AbortSignal;
}

/** Return the answer's document. Throws Problem. A token that is no longer valid ends the session. */
export async function call<T>(path: string, options: Options = {}): Promise<T> {
  const answer = await request(path, options);
  return (answer.status === 204 ? null : await answer.json()) as T;
}

/** Return the answer of a request that succeeded. Throws Problem. */
export async function request(path: string, options: Options = {}): Promise<Response> {
  const headers: Record<string, string> = {
    Authorization: `Bearer ${options.token ?? session.token ?? ""}`,
    ...options.headers,
  };
  if (options.body !== undefined) headers["Content-Type"] = "application/json";
  let answer: Response;
  try {
    answer = await fetch(`.${path}`, {
      method: options.method ?? "GET",
      headers,
      body: options.body === undefined ? null : JSON.stringify(options.body),
      cache: "no-store",
      signal: options.signal ?? null,
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Problem(0, "the server does not answer", "the page retries by itself", []);
  }
  if (answer.ok) return answer;
  if (answer.status === 401 && options.token === undefined) signOut();
  const document = await answer.json().catch(() => ({}));
  throw new Problem(
    answer.status,
    document.detail ?? `the server answered ${answer.status}`,
    document.hint ?? null,
    document.fields ?? [],
  );
}

/** Return an error as a Problem. Errors of the console itself are thrown again. */
export function problemOf(error: unknown): Problem {
  if (error instanceof Problem) return error;
  throw error;
}

/** Run `work` now, and again `every_ms` after it has ended, until the returned function is called. */
export function repeat(work: () => Promise<void>, every_ms: number): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let isOver = false;
  const step = async () => {
    if (!document.hidden) await work();
    if (!isOver) timer = setTimeout(step, every_ms);
  };
  void step();
  return () => {
    isOver = true;
    clearTimeout(timer);
  };
}
