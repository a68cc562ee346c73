// A list of the API that is read and replaced as a whole.

import { Problem, request } from "./api";

/** Attempts at a change while somebody else changes the list. */
const TRIES = 3;
const CHANGED = 412;

export class WholeList<T> {
  rows = $state<T[]>([]);
  /** The ETag of the rows. */
  private tag = "";

  /** `name` is that of the list in the document at `path`; `id` tells its entries apart. */
  constructor(
    private readonly path: string,
    private readonly name: string,
    readonly id: (one: T) => string,
  ) {}

  /** Throws Problem. */
  async read(): Promise<void> {
    await this.take(await request(this.path));
  }

  /** Add an entry, or replace the one with the same id. Throws Problem. */
  async put(entry: T): Promise<void> {
    await this.replace(entry, [entry]);
  }

  /** Throws Problem. */
  async remove(entry: T): Promise<void> {
    await this.replace(entry, []);
  }

  /** The others are read first. If somebody changes them before they are written, they are read again. */
  private async replace(old: T, entries: T[], tries = TRIES): Promise<void> {
    await this.read();
    const others = this.rows.filter((one) => this.id(one) !== this.id(old));
    const body = { [this.name]: [...others, ...entries] };
    try {
      await this.take(await request(this.path, { method: "PUT", body, headers: { "If-Match": this.tag } }));
    } catch (error) {
      if (!(error instanceof Problem && error.status === CHANGED && tries > 1)) throw error;
      await this.replace(old, entries, tries - 1);
    }
  }

  private async take(answer: Response): Promise<void> {
    this.tag = answer.headers.get("ETag") ?? "*";
    this.rows = ((await answer.json()) as Record<string, T[]>)[this.name] ?? [];
  }
}
