/** Agents that the server does not hear, in one sentence; the same as hai.client.tasks.agent_silence makes elsewhere. */
import { Say } from './language';
import { NodeRow, Silence } from './types';
import { span } from './words';

/** `agent silent for 40 s`; `agents of 3 of 8 ranks silent, longest for 2 min`. `now`: seconds since 1970. */
export function silence(say: Say, silent: Silence, now: number): string {
  const { count, rank, of } = silent;
  const values = { count, rank, all: of, span: span(now - silent.since) };
  if (count === 1) {
    return of <= 1 ? say('agent silent for {span}', values) : say('agent of rank {rank} silent for {span}', values);
  }
  if (of === 0) {
    return say('agents of {count} ranks silent, longest for {span}', values);
  }
  return count === of
    ? say('agents of all {all} ranks silent, longest for {span}', values)
    : say('agents of {count} of {all} ranks silent, longest for {span}', values);
}

/** For a narrow row: a silence of one rank that does not say which rank. */
export function shortened(silent: Silence): Silence {
  return silent.count === 1 ? { ...silent, of: 1 } : silent;
}

/** Of one rank that was last heard at a time of the contract (`2026-01-31T12:00:00Z`); empty: its agent is heard. */
export function silenceOfRank(say: Say, heard: string | undefined, now: number): string {
  return heard ? silence(say, { count: 1, rank: 0, of: 1, since: Date.parse(heard) / 1000 }, now) : '';
}

/** True when an agent on the node is silent. */
export function hasSilent(node: NodeRow): boolean {
  return node.tenants.some(tenant => tenant.silent);
}
