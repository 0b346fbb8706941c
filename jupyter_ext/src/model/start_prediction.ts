/** Describes when a task will probably start, as the server predicts it. */
import { Translate } from './language';

/** PredictedStart of the contract as JSON: times in ISO 8601. The later ones are absent if they are too far ahead. */
export interface PredictedStart {
  p10?: string;
  p50?: string;
  p90?: string;
  reason?: string;
}

/** Returns one sentence, also for an open prediction and for one that could not be made. */
export function startSentence(translate: Translate, start: PredictedStart): string {
  const [from, when, to] = [start.p10, start.p50, start.p90].map(time);
  if (!from) {
    return start.reason ? translate('No predicted start: {reason}.', { reason: start.reason }) : '';
  }
  if (!when) {
    return translate('It will probably not start before {from}.', { from });
  }
  if (!to) {
    return translate('It will probably start at {when}, or much later (not before {from}).', { when, from });
  }
  return translate('It will probably start at {when} (between {from} and {to}).', { when, from, to });
}

function time(moment: string | undefined): string {
  return moment ? new Date(moment).toLocaleString() : '';
}
