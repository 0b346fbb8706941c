/** The page of one task in the main area. Logs and charts are loaded when their tab is first opened. */
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { TaskRow } from '../model/types';
import { clock, durationText, levelName, levels, runAndRank } from '../model/format';
import { Context, useStore, useLoaded, useNow } from './context';
import { Overview } from './overview';
import { Empty, Failed, Silent, Status, Verbs, switchTabByArrow } from './common';

const Logs = React.lazy(() => import(/* webpackChunkName: "logs" */ './logs'));
const Charts = React.lazy(() => import(/* webpackChunkName: "charts" */ './charts'));

const TABS: ReadonlyArray<readonly [string, string]> = [
  ['overview', 'Overview'],
  ['logs', 'Logs'],
  ['charts', 'Charts'],
  ['timeline', 'Timeline'],
  ['file', 'Task file']
];

/** The page of one task; the widget stores the tab so that JupyterLab can restore it. */
export class TaskPage extends ReactWidget {
  constructor(
    private context: Context,
    private number: number,
    private tab: string,
    private rank = ''
  ) {
    super();
    this.addClass('hai-page');
  }

  get task(): number {
    return this.number;
  }

  /** Shows a tab of a task; `rank` selects the log of one rank. */
  showTask(id: number, tab: string, rank = ''): void {
    this.number = id;
    this.tab = tab;
    this.rank = rank;
    this.update();
  }

  protected override render(): JSX.Element {
    return <Page key={this.number} context={this.context} id={this.number} tab={this.tab} rank={this.rank} onTab={tab => this.showTask(this.number, tab)} />;
  }
}

function Page(props: { context: Context; id: number; tab: string; rank: string; onTab: (tab: string) => void }): JSX.Element {
  const { context, id, tab, rank, onTab } = props;
  useStore(context);
  const current = context.store.tasks.get(id);
  const detail = useLoaded(() => context.api.task(id), [id, current?.version, context.store.link.up]);
  const row: TaskRow | undefined = current ?? detail.value?.row;
  if (!row) {
    return detail.error ? <Failed error={detail.error} context={context} /> : <Empty>{context.translate('Loading …')}</Empty>;
  }
  return (
    <div className="hai-page-body">
      <Head context={context} row={row} />
      <div className="hai-tabs" role="tablist" onKeyDown={switchTabByArrow}>
        {TABS.map(([name, label]) => (
          <button key={name} role="tab" className="hai-tab-button" aria-selected={tab === name} onClick={() => onTab(name)}>
            {context.translate(label)}
          </button>
        ))}
      </div>
      <React.Suspense fallback={<Empty>{context.translate('Loading …')}</Empty>}>
        {tab === 'overview' && <Overview context={context} row={row} detail={detail.value} error={detail.error} />}
        {tab === 'logs' && <Logs key={rank} context={context} row={row} first={rank} />}
        {tab === 'charts' && <Charts context={context} row={row} detail={detail.value} />}
        {tab === 'timeline' && <Timeline events={detail.value?.events ?? []} />}
        {tab === 'file' && <pre className="hai-text">{detail.value?.yaml ?? ''}</pre>}
      </React.Suspense>
    </div>
  );
}

function Head(props: { context: Context; row: TaskRow }): JSX.Element {
  const { context, row } = props;
  const now = useNow();
  return (
    <header className="hai-page-head">
      <div className="hai-pair">
        <h2 title={row.name}>
          <button
            className="hai-star"
            aria-pressed={row.starred ?? false}
            title={context.translate('Mark')}
            aria-label={context.translate('Mark')}
            onClick={() => void change(context, row, 'star', { starred: !row.starred })}
          >
            {row.starred ? '★' : '☆'}
          </button>
          {row.name}
        </h2>
        <span className="hai-verbs">
          {(row.place ?? 0) > 1 && (
            <button className="hai-button" onClick={() => void change(context, row, 'move', { before: 0 })}>
              {context.translate('Move first')}
            </button>
          )}
          <Verbs task={row} context={context} words />
        </span>
      </div>
      <div className="hai-facts">
        <Status task={row} context={context} />
        <span>#{row.id}</span>
        <span>{row.user}</span>
        <span>
          {row.nodes}×{row.group}
          {row.zone ? `#${row.zone}` : ''}
        </span>
        <Level context={context} row={row} />
        <span>{durationText(row, now)}</span>
        {(row.runs ?? 0) > 0 && <span>{context.translate('run {n}', { n: row.runs ?? 0 })}</span>}
      </div>
      <Silent task={row} context={context} now={now} />
      {row.why && <div className="hai-why">{row.why}</div>}
    </header>
  );
}

function Level(props: { context: Context; row: TaskRow }): JSX.Element {
  const { context, row } = props;
  if (row.state === 'FINISHED' || context.me()?.user !== row.user) {
    return <span>{levelName(row.priority)}</span>;
  }
  return (
    <select
      className="hai-level"
      aria-label={context.translate('Priority')}
      value={row.priority}
      onChange={event => void change(context, row, 'priority', { priority: Number(event.target.value) })}
    >
      {levels.map(([number, name]) => (
        <option key={number} value={number}>
          {name}
        </option>
      ))}
    </select>
  );
}

async function change(context: Context, row: TaskRow, verb: string, body: Record<string, unknown>): Promise<void> {
  try {
    context.store.put(await context.api.verb(row.id, verb, body));
  } catch (error) {
    context.shell.fail(error);
  }
  context.store.changed(); // also after a refusal, so that the control shows the real value
}

function Timeline(props: { events: any[] }): JSX.Element {
  return (
    <div className="hai-tab hai-scroll">
      <table className="hai-table hai-events">
        <tbody>
          {[...props.events].reverse().map(event => (
            <tr key={event.sequence}>
              <td className="hai-dim">{clock(new Date(event.time))}</td>
              <td>{event.actor}</td>
              <td>
                <b>{event.kind}</b> {runAndRank(event.run, event.rank)}
              </td>
              <td>{event.reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
