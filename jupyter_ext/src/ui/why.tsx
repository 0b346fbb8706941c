/** Why a task waits, as the scheduler says it; or what its silent agents mean. */
import * as React from 'react';

import { expected } from '../model/start';
import { Context } from './context';

/** The reason with its numbers, when it will probably start, and what would change that. */
export function Why(props: { context: Context; why: any }): JSX.Element {
  const { context, why } = props;
  const start = why.waiting?.predicted_start;
  if (why.silent_ranks?.length) {
    return (
      <section className="hai-card hai-why-card">
        <h3>{context.say('An agent is silent')}</h3>
        <Sentences title={context.say('What this means')} all={why.constraints} />
        <Sentences title={context.say('What you can do')} all={why.suggestions} />
      </section>
    );
  }
  return (
    <section className="hai-card hai-why-card">
      <h3>{context.say('Why it waits')}</h3>
      {why.waiting?.queue_place && <p>{context.say('Place {n} in the queue.', { n: why.waiting.queue_place })}</p>}
      {start && <p>{expected(context.say, start)}</p>}
      <Sentences title={context.say('In the way')} all={why.constraints} />
      <Sentences title={context.say('What would help')} all={why.suggestions} />
      <Sentences title={context.say('Suspended before')} all={why.history} />
    </section>
  );
}

function Sentences(props: { title: string; all?: string[] }): JSX.Element | null {
  if (!props.all?.length) {
    return null;
  }
  return (
    <>
      <h4>{props.title}</h4>
      <ul>
        {props.all.map(sentence => (
          <li key={sentence}>{sentence}</li>
        ))}
      </ul>
    </>
  );
}
