/** Shows why a task waits or has failed, or that its agents are silent. */
import * as React from 'react';

import { startSentence } from '../model/start_prediction';
import { Context } from './context';

/** The reason, the predicted start, and what would change it. */
export function Explanation(props: { context: Context; why: any; failed: boolean }): JSX.Element {
  const { context, why } = props;
  const start = why.waiting?.predicted_start;
  if (why.silent_ranks?.length) {
    return (
      <section className="hai-card hai-why-card">
        <h3>{context.translate('An agent is silent')}</h3>
        <Sentences title={context.translate('What this means')} all={why.constraints} />
        <Sentences title={context.translate('What you can do')} all={why.suggestions} />
      </section>
    );
  }
  if (props.failed) {
    return <Diagnosis context={context} why={why} />;
  }
  return (
    <section className="hai-card hai-why-card">
      <h3>{context.translate('Why it waits')}</h3>
      {why.waiting?.queue_place && <p>{context.translate('Place {n} in the queue.', { n: why.waiting.queue_place })}</p>}
      {start && <p>{startSentence(context.translate, start)}</p>}
      <Sentences title={context.translate('In the way')} all={why.constraints} />
      <Sentences title={context.translate('What would help')} all={why.suggestions} />
      <Sentences title={context.translate('Suspended before')} all={why.history} />
    </section>
  );
}

/** The diagnosis of a failed task: what happened, the last lines of the rank, the likely cause, what to try. */
function Diagnosis(props: { context: Context; why: any }): JSX.Element {
  const { context, why } = props;
  const sentences: string[] = why.constraints ?? [];
  const lines = sentences.filter(sentence => sentence.startsWith(LINE));
  const first = sentences.findIndex(sentence => sentence.startsWith(LINE));
  const before = sentences.slice(0, first < 0 ? sentences.length : first);
  return (
    <section className="hai-card hai-why-card">
      <h3>{context.translate('Why it failed')}</h3>
      <Sentences all={before} />
      {lines.length > 0 && <pre className="hai-text">{lines.map(line => line.slice(LINE.length)).join('\n')}</pre>}
      <Sentences all={sentences.slice(before.length + lines.length)} />
      <Sentences title={context.translate('What you can do')} all={why.suggestions} />
    </section>
  );
}

/** The prefix of a program's output lines among the sentences of a diagnosis. */
const LINE = '| ';

function Sentences(props: { title?: string; all?: string[] }): JSX.Element | null {
  if (!props.all?.length) {
    return null;
  }
  return (
    <>
      {props.title && <h4>{props.title}</h4>}
      <ul>
        {props.all.map(sentence => (
          <li key={sentence}>{sentence}</li>
        ))}
      </ul>
    </>
  );
}
