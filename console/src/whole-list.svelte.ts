// A list of the API that is read and replaced as a whole.

import { call } from "./api";

export class WholeList<T> {
  rows = $state<T[]>([]);

  /** `name` is that of the list in the document at `path`; `id` tells its entries apart. */
  constructor(
    private readonly path: string,
    private readonly name: string,
    readonly id: (one: T) => string,
  ) {}

  /** Throws Problem. */
  async read(): Promise<void> {
    this.rows = (await call<Record<string, T[]>>(this.path))[this.name] ?? [];
  }

  /** Add an entry, or replace the one with the same id. Throws Problem. */
  async put(entry: T): Promise<void> {
    await this.replace(entry, [entry]);
  }

  /** Throws Problem. */
  async remove(entry: T): Promise<void> {
    await this.replace(entry, []);
  }

  /** The others are read first: somebody may have changed them. */
  private async replace(old: T, entries: T[]): Promise<void> {
    await this.read();
    const others = this.rows.filter((one) => this.id(one) !== this.id(old));
    await call(this.path, { method: "PUT", body: { [this.name]: [...others, ...entries] } });
    await this.read();
  }
}
