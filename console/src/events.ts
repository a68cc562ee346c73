// Server-sent events with a token in a header, which EventSource cannot send.

import { request } from "./api";
import type { JobEvent } from "./types";

const RETRY_MS = 2000;

/** Call `handle` for each event of a job until it has ended or `signal` aborts. A lost connection is resumed. */
export async function readEvents(path: string, handle: (event: JobEvent) => void, signal: AbortSignal): Promise<void> {
  let last: string | null = null;
  while (!signal.aborted) {
    try {
      const answer = await request(path, { headers: last === null ? {} : { "Last-Event-ID": last }, signal });
      for await (const block of blocks(answer)) {
        const event = parse(block);
        if (event === null) continue;
        last = event.id ?? last;
        handle(event.document);
      }
      return;
    } catch {
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
    }
  }
}

async function* blocks(answer: Response): AsyncGenerator<string> {
  if (answer.body === null) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const complete = text.split("\n\n");
    text = complete.pop() ?? "";
    yield* complete;
  }
}

function parse(block: string): { id: string | null; document: JobEvent } | null {
  const fields = new Map(
    block
      .split("\n")
      .filter((line) => !line.startsWith(":"))
      .map((line): [string, string] => {
        const at = line.indexOf(": ");
        return [line.slice(0, at), line.slice(at + 2)];
      }),
  );
  const data = fields.get("data");
  return data === undefined ? null : { id: fields.get("id") ?? null, document: JSON.parse(data) };
}
