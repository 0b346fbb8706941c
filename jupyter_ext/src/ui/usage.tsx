/** Charts of the resource use of ranks over time, for all ranks and for each. */
import * as React from 'react';

import { TaskRow } from '../model/types';
import { Point, chartOf, rankPages } from '../model/usage';
import { bytes } from '../model/format';
import { Context, useLoaded, useNow } from './context';

const WIDTH = 1000;
const HEIGHT = 40;
const REFRESH_SECONDS = 30;
const PAGE_RANKS = 8;

interface Quantity {
  label: string;
  column: 1 | 2 | 3 | 4;
  top?: number;
  show: (value: number) => string;
}

const QUANTITIES: readonly Quantity[] = [
  { label: 'CPUs', column: 1, show: value => value.toFixed(value < 10 ? 2 : 0) },
  { label: 'Memory', column: 2, show: bytes },
  { label: 'GPUs', column: 3, top: 1, show: value => `${Math.round(value * 100)} %` },
  { label: 'GPU memory', column: 4, show: bytes }
];

/** The charts of a task; nothing without measurements. */
export function Usage(props: { context: Context; row: TaskRow }): JSX.Element | null {
  const { context, row } = props;
  const turn = Math.floor(useNow() / REFRESH_SECONDS);
  const [first, setFirst] = React.useState(0);
  const series = useLoaded(() => context.api.usage(row.id, first), [row.id, first, turn]).value;
  if (!series || (series.ranks.length === 0 && first === 0)) {
    return null;
  }
  const { start, end, step, sum } = series;
  return (
    <section className="hai-card hai-usage">
      <h3>{context.translate('Use')}</h3>
      {sum.points.length > 0 && (
        <Areas context={context} title={context.translate('all ranks together')} points={sum.points} times={[start, end, sum.step]} />
      )}
      <Pages context={context} ranks={row.nodes} first={first} onChange={setFirst} />
      {series.ranks.map(rank => (
        <Areas
          key={`${rank.rank}-${rank.run}`}
          context={context}
          title={context.translate('rank {rank}, run {run}', { rank: rank.rank, run: rank.run })}
          points={rank.points}
          times={[start, end, step]}
        />
      ))}
    </section>
  );
}

function Pages(props: { context: Context; ranks: number; first: number; onChange: (first: number) => void }): JSX.Element | null {
  const { context, ranks, first, onChange } = props;
  if (ranks <= PAGE_RANKS) {
    return null;
  }
  return (
    <select className="hai-input" aria-label={context.translate('Ranks')} value={first} onChange={event => onChange(Number(event.target.value))}>
      {rankPages(ranks, PAGE_RANKS).map(([from, to]) => (
        <option key={from} value={from}>
          {context.translate('ranks {from} to {to}', { from, to })}
        </option>
      ))}
    </select>
  );
}

interface AreasProps {
  context: Context;
  title: string;
  points: readonly Point[];
  /** Start, end, step. */
  times: readonly [number, number, number];
}

function Areas(props: AreasProps): JSX.Element {
  return (
    <>
      <h4>{props.title}</h4>
      {QUANTITIES.map(quantity => (
        <Area key={quantity.label} {...props} quantity={quantity} />
      ))}
    </>
  );
}

function Area(props: AreasProps & { quantity: Quantity }): JSX.Element | null {
  const { context, quantity, points, times } = props;
  const [start, end, step] = times;
  const chart = chartOf(points, quantity.column, start, end, step, quantity.top);
  if (!chart) {
    return null;
  }
  const values = { last: quantity.show(chart.last), mean: quantity.show(chart.mean) };
  const caption = `${context.translate(quantity.label)}: ${context.translate('{last} now, {mean} in the mean', values)}`;
  return (
    <figure>
      <figcaption>{caption}</figcaption>
      <svg className="hai-life" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img" aria-label={caption}>
        {chart.bars.map(bar => (
          <rect
            key={bar.time}
            className="hai-bar-running"
            x={bar.left * WIDTH}
            width={bar.width * WIDTH + 0.5}
            y={HEIGHT * (1 - bar.height)}
            height={HEIGHT * bar.height}
          >
            <title>{`${new Date(bar.time * 1000).toLocaleString()} ${quantity.show(bar.value)}`}</title>
          </rect>
        ))}
      </svg>
    </figure>
  );
}
