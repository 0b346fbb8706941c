/** Describes agents that the server does not hear, as hai.client.tasks.silent_agents does. */
import { Translate } from './language';
import { NodeRow, Silence } from './types';
import { span } from './format';

/** Returns `agent silent for 40 s`, or `agents of 3 of 8 ranks silent, longest for 2 min`. `now` is in seconds since 1970. */
export function silenceText(translate: Translate, silent: Silence, now: number): string {
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

/** Returns the silence without the number of the only silent rank, for a narrow row. */
export function withoutRank(silent: Silence): Silence {
  return silent.count === 1 ? { ...silent, of: 1 } : silent;
}

/** Returns the text for a rank that was last heard at a time (`2026-01-31T12:00:00Z`); empty if its agent is heard. */
export function rankSilenceText(translate: Translate, lastHeard: string | undefined, now: number): string {
  return lastHeard ? silenceText(translate, { count: 1, rank: 0, of: 1, since: Date.parse(lastHeard) / 1000 }, now) : '';
}

/** Returns true if an agent on the node is silent. */
export function hasSilentAgent(node: NodeRow): boolean {
  return node.tenants.some(tenant => tenant.silent);
}
