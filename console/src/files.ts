// Answers that the user saves.

/** Save the body of an answer as a file of that name. */
export async function save(answer: Response, name: string): Promise<void> {
  const address = URL.createObjectURL(await answer.blob());
  Object.assign(document.createElement("a"), { href: address, download: name }).click();
  URL.revokeObjectURL(address);
}
