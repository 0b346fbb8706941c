/** Describes agents that the server does not hear, as hai.client.tasks.silent_agents does. */
import { Translate } from './language';
import { NodeRow, Silence } from './types';
import { span } from './format';

/** `agent silent for 40 s`; `agents of 3 of 8 ranks silent, longest for 2 min`. `now`: seconds since 1970. */
export function silence(translate: Translate, silent: Silence, now: number): string {
  const { count, rank, of } = silent;
  const values = { count, rank, all: of, span: span(now - silent.since) };
  if (count === 1) {
    return of <= 1 ? translate('agent silent for {span}', values) : translate('agent of rank {rank} silent for {span}', values);
  }
  if (of === 0) {
    return translate('agents of {count} ranks silent, longest for {span}', values);
  }
  return count === of
    ? translate('agents of all {all} ranks silent, longest for {span}', values)
    : translate('agents of {count} of {all} ranks silent, longest for {span}', values);
}

/** For a narrow row: without the number of the rank. */
export function shortened(silent: Silence): Silence {
  return silent.count === 1 ? { ...silent, of: 1 } : silent;
}

/** Of one rank that was last heard at a time of the contract (`2026-01-31T12:00:00Z`); empty: its agent is heard. */
export function silenceOfRank(translate: Translate, heard: string | undefined, now: number): string {
  return heard ? silence(translate, { count: 1, rank: 0, of: 1, since: Date.parse(heard) / 1000 }, now) : '';
}

/** True when an agent on the node is silent. */
export function hasSilent(node: NodeRow): boolean {
  return node.tenants.some(tenant => tenant.silent);
}
