/** The page of one task in the main area. Logs and charts are loaded when their tab is opened first. */
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { TaskRow } from '../model/types';
import { held, lasting, level, levels, moment, span } from '../model/words';
import { Context, useBoard, useLoaded, useNow } from './context';
import { Empty, Failed, Status, Verbs } from './parts';
import { Why } from './why';

const Logs = React.lazy(() => import(/* webpackChunkName: "logs" */ './logs'));
const Charts = React.lazy(() => import(/* webpackChunkName: "charts" */ './charts'));

const TABS: ReadonlyArray<readonly [string, string]> = [
  ['overview', 'Overview'],
  ['logs', 'Logs'],
  ['charts', 'Charts'],
  ['timeline', 'Timeline'],
  ['file', 'Task file']
];

/** One task; the tab is kept in the widget so that Lab can bring it back. */
export class TaskPage extends ReactWidget {
  constructor(
    private context: Context,
    readonly task: number,
    private tab: string
  ) {
    super();
    this.addClass('hai-page');
  }

  /** Show a tab. */
  open(tab: string): void {
    this.tab = tab;
    this.update();
  }

  protected override render(): JSX.Element {
    return <Page context={this.context} id={this.task} tab={this.tab} onTab={tab => this.open(tab)} />;
  }
}

function Page(props: { context: Context; id: number; tab: string; onTab: (tab: string) => void }): JSX.Element {
  const { context, id, tab, onTab } = props;
  useBoard(context);
  const known = context.board.tasks.get(id);
  const detail = useLoaded(() => context.api.task(id), [id, known?.version, context.board.link.up]);
  const row: TaskRow | undefined = known ?? detail.value?.row;
  if (!row) {
    return detail.error ? <Failed error={detail.error} context={context} /> : <Empty>{context.say('Loading …')}</Empty>;
  }
  return (
    <div className="hai-page-body">
      <Head context={context} row={row} />
      <div className="hai-tabs" role="tablist">
        {TABS.map(([name, label]) => (
          <button key={name} role="tab" className="hai-tab-button" aria-selected={tab === name} onClick={() => onTab(name)}>
            {context.say(label)}
          </button>
        ))}
      </div>
      <React.Suspense fallback={<Empty>{context.say('Loading …')}</Empty>}>
        {tab === 'overview' && <Overview context={context} row={row} detail={detail.value} error={detail.error} />}
        {tab === 'logs' && <Logs context={context} row={row} />}
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
            title={context.say('Mark')}
            onClick={() => void change(context, row, 'star', { starred: !row.starred })}
          >
            {row.starred ? '★' : '☆'}
          </button>
          {row.name}
        </h2>
        <span className="hai-verbs">
          {(row.place ?? 0) > 1 && (
            <button className="hai-button" onClick={() => void change(context, row, 'move', { before: 0 })}>
              {context.say('Move first')}
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
        <span>{lasting(row, now)}</span>
        {(row.runs ?? 0) > 0 && <span>{context.say('run {n}', { n: row.runs ?? 0 })}</span>}
      </div>
      {row.why && <div className="hai-why">{row.why}</div>}
    </header>
  );
}

function Level(props: { context: Context; row: TaskRow }): JSX.Element {
  const { context, row } = props;
  if (row.state === 'FINISHED' || context.me()?.user !== row.user) {
    return <span>{level(row.priority)}</span>;
  }
  return (
    <select
      className="hai-level"
      aria-label={context.say('Priority')}
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
    context.board.put(await context.api.verb(row.id, verb, body));
  } catch (error) {
    context.shell.fail(error);
  }
  context.board.changed(); // also after a refusal: the control shows what holds
}

function Overview(props: { context: Context; row: TaskRow; detail: any; error: Error | null }): JSX.Element {
  const { context, row, detail, error } = props;
  const { say } = context;
  const now = useNow();
  const failed = (detail?.task?.run?.ranks ?? []).find((rank: any) => rank.last_lines);
  const advice = row.state === 'FINISHED' ? '' : detail?.task?.goodput?.note;
  return (
    <div className="hai-tab hai-scroll">
      <Failed error={error} context={context} />
      {detail?.why && <Why context={context} why={detail.why} />}
      {failed && (
        <section className="hai-card">
          <h3>
            {say('Rank {rank} on {node} failed', { rank: failed.index ?? 0, node: failed.node ?? '' })}
            {failed.exit_meaning ? `: ${failed.exit_meaning}` : ''}
          </h3>
          <pre className="hai-text">{failed.last_lines}</pre>
        </section>
      )}
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

function Ranks(props: { context: Context; row: TaskRow; ranks: any[] }): JSX.Element | null {
  const { context, row, ranks } = props;
  if (ranks.length === 0) {
    return null;
  }
  return (
    <section className="hai-card">
      <h3>{context.say('Ranks')}</h3>
      <table className="hai-table">
        <tbody>
          {ranks.map(rank => (
            <tr key={rank.index ?? 0}>
              <td>{rank.index ?? 0}</td>
              <td>{rank.node}</td>
              <td>{(rank.state ?? '').replace('RANK_STATE_', '')}</td>
              <td>{rank.exit_code === undefined ? '' : `exit ${rank.exit_code} ${rank.exit_meaning ?? ''}`}</td>
              <td>
                <button className="hai-button hai-button-small" onClick={() => context.shell.openTask(row.id, 'logs')}>
                  {context.say('Logs')}
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}

function Timeline(props: { events: any[] }): JSX.Element {
  return (
    <div className="hai-tab hai-scroll">
      <table className="hai-table hai-events">
        <tbody>
          {[...props.events].reverse().map(event => (
            <tr key={event.sequence}>
              <td className="hai-dim">{new Date(event.time).toLocaleTimeString()}</td>
              <td>{event.actor}</td>
              <td>
                <b>{event.kind}</b>
                {event.rank >= 0 && event.run ? ` ${event.run}.${event.rank ?? 0}` : ''}
              </td>
              <td>{event.reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
