// What a user may do with a job in each state. The server decides; this only hides buttons that it would refuse.

import type { State } from "./types";

export interface Action {
  name: "pause" | "resume" | "cancel";
  label: string;
}

const PAUSE: Action = { name: "pause", label: "Pause" };
const RESUME: Action = { name: "resume", label: "Resume" };
const CANCEL: Action = { name: "cancel", label: "Cancel" };

const ACTIONS: Record<State, Action[]> = {
  waiting: [PAUSE, CANCEL],
  running: [PAUSE, CANCEL],
  pausing: [CANCEL],
  stopping: [CANCEL],
  cancelling: [],
  paused: [RESUME, CANCEL],
  done: [],
  failed: [RESUME],
  cancelled: [],
};

export function actionsOf(state: State): Action[] {
  return ACTIONS[state];
}

export function hasEnded(state: State): boolean {
  return state === "done" || state === "failed" || state === "cancelled";
}
