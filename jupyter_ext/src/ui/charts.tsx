/** Charts of one task: its timeline, and how its node time was used. */
import * as React from 'react';

import { Bar, lifeBars, runningShare } from '../model/timeline';
import { TaskRow } from '../model/types';
import { span } from '../model/format';
import { Context, useNow } from './context';
import { Empty } from './common';
import { Usage } from './usage';

const WIDTH = 1000;
const HEIGHT = 22;

/** Charts as SVG, which scales, prints and follows the theme. */
export default function Charts(props: { context: Context; row: TaskRow; detail: any }): JSX.Element {
  const { context, row, detail } = props;
  const now = useNow();
  const bars = lifeBars(row.created ?? now, detail?.runs ?? [], row.finished ?? 0, now);
  if (bars.length === 0) {
    return <Empty>{context.translate('Nothing to draw yet.')}</Empty>;
  }
  const share = Math.round(runningShare(bars) * 100);
  return (
    <div className="hai-tab hai-scroll">
      <section className="hai-card">
        <h3>{context.translate('Life: it ran for {share} % of the time', { share })}</h3>
        <Life bars={bars} context={context} />
        <Legend context={context} kinds={['waiting', 'starting', 'running']} />
      </section>
      <Usage context={context} row={row} />
      <Goodput goodput={detail?.task?.goodput} context={context} />
      <section className="hai-card">
        <h3>{context.translate('Runs')}</h3>
        <table className="hai-table">
          <tbody>
            {bars
              .filter(bar => bar.kind === 'running')
              .map(bar => (
                <tr key={bar.run}>
                  <td>{bar.run}</td>
                  <td>{new Date(bar.from * 1000).toLocaleString()}</td>
                  <td>{span(bar.to - bar.from)}</td>
                  <td>{bar.reason}</td>
                </tr>
              ))}
          </tbody>
        </table>
      </section>
    </div>
  );
}

function Life(props: { bars: Bar[]; context: Context }): JSX.Element {
  const first = props.bars[0]!.from;
  const last = props.bars[props.bars.length - 1]!.to;
  const scale = WIDTH / Math.max(1, last - first);
  return (
    <svg className="hai-life" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img">
      {props.bars.map(bar => (
        <rect
          key={`${bar.kind}${bar.run}`}
          className={`hai-bar-${bar.kind}`}
          x={(bar.from - first) * scale}
          width={Math.max(1, (bar.to - bar.from) * scale)}
          y={bar.kind === 'waiting' ? HEIGHT / 4 : 0}
          height={bar.kind === 'waiting' ? HEIGHT / 2 : HEIGHT}
        >
          <title>{`${props.context.translate(bar.kind)} ${span(bar.to - bar.from)} ${bar.reason}`}</title>
        </rect>
      ))}
    </svg>
  );
}

function Legend(props: { kinds: string[]; context: Context }): JSX.Element {
  return (
    <div className="hai-legend">
      {props.kinds.map(kind => (
        <span key={kind}>
          <svg width="12" height="12">
            <rect width="12" height="12" className={`hai-bar-${kind}`} />
          </svg>{' '}
          {props.context.translate(kind)}
        </span>
      ))}
    </div>
  );
}

function Goodput(props: { goodput: any; context: Context }): JSX.Element | null {
  const { goodput, context } = props;
  if (!goodput?.held_seconds) {
    return null;
  }
  const lost = goodput.lost_seconds ?? 0;
  const overhead = goodput.overhead_seconds ?? 0;
  const parts: Array<readonly [string, number]> = [
    ['kept', Math.max(0, goodput.held_seconds - lost - overhead)],
    ['overhead', overhead],
    ['lost', lost]
  ];
  let at = 0;
  return (
    <section className="hai-card">
      <h3>{context.translate('Time on nodes')}</h3>
      <svg className="hai-life" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img">
        {parts.map(([kind, seconds]) => {
          const x = at;
          at += (seconds / goodput.held_seconds) * WIDTH;
          return (
            <rect key={kind} className={`hai-bar-${kind}`} x={x} width={at - x} y={0} height={HEIGHT}>
              <title>{`${context.translate(kind)} ${span(seconds)}`}</title>
            </rect>
          );
        })}
      </svg>
      <Legend context={context} kinds={parts.map(([kind]) => kind)} />
    </section>
  );
}
