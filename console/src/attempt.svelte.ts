// Work that may fail with a Problem, and lists that are read page by page.

import { call, problemOf, type Problem } from "./api";
import type { Page } from "./types";

const PAGE_ROWS = "100";

/** The latest work of a part of a page. `problem` is its error, which the next work clears. */
export class Attempt {
  problem = $state<Problem | null>(null);
  isBusy = $state(false);

  async run(work: () => Promise<unknown>): Promise<void> {
    this.problem = null;
    this.isBusy = true;
    try {
      await work();
    } catch (error) {
      this.problem = problemOf(error);
    } finally {
      this.isBusy = false;
    }
  }

  /** Ask first. */
  async confirmed(question: string, work: () => Promise<unknown>): Promise<void> {
    if (confirm(question)) await this.run(work);
  }

  /** Return the message for the first of these fields of the request's body that is wrong, or null. */
  of(...fields: string[]): string | null {
    return fields.map((field) => this.problem?.of(field) ?? null).find((text) => text !== null) ?? null;
  }

  /** Return the message for a field of any entry of a list in the request's body, or null. */
  ofEntry(list: string, field: string): string | null {
    const isIt = (name: string) => name.startsWith(`body.${list}.`) && name.endsWith(`.${field}`);
    return this.problem?.fields.find((one) => isIt(one.field))?.message ?? null;
  }
}

/** The rows that were read of a list of the API; `next` is the cursor of those that were not. */
export class Rows<T> {
  rows = $state<T[]>([]);
  next = $state<string | null>(null);

  /** `name` is that of the list in the answer of `path`; `query` has further values, such as another `limit`. */
  constructor(
    private readonly path: string,
    private readonly name: string,
    private readonly query: Record<string, string> = {},
  ) {}

  /** Return what reads the rows after those, as work of an attempt; null if all were read. */
  more(attempt: Attempt): (() => void) | null {
    const { next } = this;
    return next === null ? null : () => void attempt.run(() => this.read(next));
  }

  /** Read the first rows, or those from a cursor on. Throws Problem. */
  async read(cursor: string | null = null): Promise<void> {
    const query = new URLSearchParams({ limit: PAGE_ROWS, ...this.query, ...(cursor ? { cursor } : {}) });
    const page = await call<Page & Record<string, unknown>>(`${this.path}?${query}`);
    const found = page[this.name] as T[];
    this.rows = cursor === null ? found : [...this.rows, ...found];
    this.next = page.next === null ? null : String(page.next);
  }
}
