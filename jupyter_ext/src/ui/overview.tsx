/** The first tab of a task: why it waits or failed, when and on which nodes it ran, and what it runs. */
import * as React from 'react';

import { TaskRow } from '../model/types';
import { heldSeconds, moment, span } from '../model/format';
import { Context, useNow } from './context';
import { Dependencies } from './dependencies';
import { Failed } from './common';
import { Ranks } from './ranks';
import { Explanation } from './explanation';

export function Overview(props: { context: Context; row: TaskRow; detail: any; error: Error | null }): JSX.Element {
  const { context, row, detail, error } = props;
  const { translate } = context;
  const now = useNow();
  const advice = row.state === 'FINISHED' ? '' : detail?.task?.goodput?.note;
  return (
    <div className="hai-tab hai-scroll">
      <Failed error={error} context={context} />
      {detail?.why && <Explanation context={context} why={detail.why} failed={row.outcome === 'FAILED'} />}
      <Dependencies context={context} row={row} detail={detail} />
      <section className="hai-card">
        <dl className="hai-dl">
          <dt>{translate('Submitted')}</dt>
          <dd>{moment(row.created)}</dd>
          <dt>{translate('Started')}</dt>
          <dd>{moment(row.started)}</dd>
          <dt>{translate('Finished')}</dt>
          <dd>{moment(row.finished)}</dd>
          <dt>{translate('Held nodes for')}</dt>
          <dd>{span(heldSeconds(row, now))}</dd>
          {row.tags && <dt>{translate('Tags')}</dt>}
          {row.tags && <dd>{row.tags.join(', ')}</dd>}
          {advice && <dt>{translate('Advice')}</dt>}
          {advice && <dd>{advice}</dd>}
        </dl>
      </section>
      <Ranks context={context} row={row} ranks={detail?.task?.run?.ranks ?? []} />
      <Command detail={detail} context={context} />
      {(detail?.notebook || detail?.fetchable) && (
        <button className="hai-button" onClick={() => void openNotebook(context, row.id, detail.notebook)}>
          {translate('Open the executed notebook')}
        </button>
      )}
    </div>
  );
}

/** Opens the local notebook, or downloads it from the directory of the task first. */
async function openNotebook(context: Context, id: number, localPath: string): Promise<void> {
  try {
    context.shell.openFile(localPath || (await context.api.executed(id)).path);
  } catch (error) {
    context.shell.fail(error);
  }
}

function Command(props: { detail: any; context: Context }): JSX.Element | null {
  const spec = props.detail?.task?.spec?.spec;
  if (!spec) {
    return null;
  }
  const command = [spec.entrypoint, ...(spec.parameters ?? [])].join(' ');
  return (
    <section className="hai-card">
      <h3>{props.context.translate('Program')}</h3>
      <code className="hai-text">{command}</code>
      {spec.workspace && <div className="hai-dim">{spec.workspace}</div>}
    </section>
  );
}
