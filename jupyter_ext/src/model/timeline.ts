/** Divides the life of a task into bars: waiting, starting, running. */

export interface Run {
  number: number;
  create_time?: string;
  start_time?: string;
  end_time?: string;
  reason?: string;
  state?: string;
}

export interface Bar {
  kind: 'waiting' | 'starting' | 'running';
  run: number;
  /** Seconds since 1970. */
  from: number;
  to: number;
  reason: string;
}

/** Returns the bars from submission to the end, or to now. */
export function lifeBars(created: number, runs: readonly Run[], finished: number, now: number): Bar[] {
  const bars: Bar[] = [];
  let at = created;
  const add = (kind: Bar['kind'], run: number, to: number, reason: string) => {
    if (to > at) {
      bars.push({ kind, run, from: at, to, reason });
      at = to;
    }
  };
  for (const run of runs) {
    const reason = run.reason ?? '';
    const end = time(run.end_time) || finished || now;
    add('waiting', run.number, time(run.create_time), '');
    add('starting', run.number, time(run.start_time) || end, reason);
    add('running', run.number, end, reason);
  }
  add('waiting', 0, finished || now, '');
  return bars;
}

/** Returns the share of the time for which the task has run, from 0 to 1. */
export function runningShare(bars: readonly Bar[]): number {
  const total = bars.reduce((sum, bar) => sum + bar.to - bar.from, 0);
  const running = bars.filter(bar => bar.kind === 'running');
  return total > 0 ? running.reduce((sum, bar) => sum + bar.to - bar.from, 0) / total : 0;
}

function time(text: string | undefined): number {
  return text ? Date.parse(text) / 1000 : 0;
}
