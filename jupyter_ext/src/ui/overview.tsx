/** The first tab of a task: why it waits, what went wrong, when, on which nodes, and what it runs. */
import * as React from 'react';

import { TaskRow } from '../model/types';
import { held, moment, span } from '../model/words';
import { Context, useNow } from './context';
import { Order } from './order';
import { Failed } from './parts';
import { Ranks } from './ranks';
import { Why } from './why';

export function Overview(props: { context: Context; row: TaskRow; detail: any; error: Error | null }): JSX.Element {
  const { context, row, detail, error } = props;
  const { say } = context;
  const now = useNow();
  const advice = row.state === 'FINISHED' ? '' : detail?.task?.goodput?.note;
  return (
    <div className="hai-tab hai-scroll">
      <Failed error={error} context={context} />
      {detail?.why && <Why context={context} why={detail.why} failed={row.outcome === 'FAILED'} />}
      <Order context={context} row={row} detail={detail} />
      <section className="hai-card">
        <dl className="hai-dl">
          <dt>{say('Submitted')}</dt>
          <dd>{moment(row.created)}</dd>
          <dt>{say('Started')}</dt>
          <dd>{moment(row.started)}</dd>
          <dt>{say('Finished')}</dt>
          <dd>{moment(row.finished)}</dd>
          <dt>{say('Held nodes for')}</dt>
          <dd>{span(held(row, now))}</dd>
          {row.tags && <dt>{say('Tags')}</dt>}
          {row.tags && <dd>{row.tags.join(', ')}</dd>}
          {advice && <dt>{say('Advice')}</dt>}
          {advice && <dd>{advice}</dd>}
        </dl>
      </section>
      <Ranks context={context} row={row} ranks={detail?.task?.run?.ranks ?? []} />
      <Command detail={detail} context={context} />
      {(detail?.notebook || detail?.fetchable) && (
        <button className="hai-button" onClick={() => void openNotebook(context, row.id, detail.notebook)}>
          {say('Open the executed notebook')}
        </button>
      )}
    </div>
  );
}

/** The one that lies here; else it is brought from the task's own directory first. */
async function openNotebook(context: Context, id: number, here: string): Promise<void> {
  try {
    context.shell.openFile(here || (await context.api.executed(id)).path);
  } catch (error) {
    context.shell.fail(error);
  }
}

function Command(props: { detail: any; context: Context }): JSX.Element | null {
  const spec = props.detail?.task?.spec?.spec;
  if (!spec) {
    return null;
  }
  const words = [spec.entrypoint, ...(spec.parameters ?? [])].join(' ');
  return (
    <section className="hai-card">
      <h3>{props.context.say('Program')}</h3>
      <code className="hai-text">{words}</code>
      {spec.workspace && <div className="hai-dim">{spec.workspace}</div>}
    </section>
  );
}
