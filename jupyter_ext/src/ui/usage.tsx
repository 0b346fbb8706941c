/** What the ranks of a task use over time: an area for each quantity that was measured. */
import * as React from 'react';

import { Series } from '../api';
import { Context, useLoaded, useNow } from './context';

const WIDTH = 1000;
const HEIGHT = 40;
const REFRESH_SECONDS = 30;
const GIB = 2 ** 30;

interface Quantity {
  label: string;
  column: 1 | 2 | 3 | 4;
  top?: number;
  show: (value: number) => string;
}

const QUANTITIES: readonly Quantity[] = [
  { label: 'CPUs', column: 1, show: value => value.toFixed(1) },
  { label: 'Memory', column: 2, show: gib },
  { label: 'GPUs', column: 3, top: 1, show: value => `${Math.round(value * 100)} %` },
  { label: 'GPU memory', column: 4, show: gib }
];

/** Nothing where nothing was measured. */
export function Usage(props: { context: Context; id: number }): JSX.Element | null {
  const { context, id } = props;
  const turn = Math.floor(useNow() / REFRESH_SECONDS);
  const found = useLoaded(() => context.api.usage(id), [id, turn]).value;
  if (!found || found.ranks.length === 0) {
    return null;
  }
  return (
    <section className="hai-card hai-usage">
      <h3>{context.say('Use')}</h3>
      {found.ranks.map(one => (
        <React.Fragment key={`${one.rank}-${one.run}`}>
          <h4>{context.say('rank {rank}, run {run}', { rank: one.rank, run: one.run })}</h4>
          {QUANTITIES.map(quantity => (
            <Area key={quantity.label} context={context} quantity={quantity} found={found} points={one.points} />
          ))}
        </React.Fragment>
      ))}
    </section>
  );
}

function Area(props: {
  context: Context;
  quantity: Quantity;
  found: Series;
  points: Series['ranks'][number]['points'];
}): JSX.Element | null {
  const { context, quantity, found, points } = props;
  const known = points.filter(point => point[quantity.column] !== null);
  const values = known.map(point => point[quantity.column] as number);
  if (values.length === 0) {
    return null;
  }
  const top = quantity.top ?? (Math.max(...values) || 1);
  const width = (WIDTH * found.step) / Math.max(1, found.end - found.start);
  const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
  const told = { last: quantity.show(values[values.length - 1]!), mean: quantity.show(mean) };
  return (
    <figure>
      <figcaption>
        {context.say(quantity.label)}: {context.say('{last} now, {mean} in the mean', told)}
      </figcaption>
      <svg className="hai-life" viewBox={`0 0 ${WIDTH} ${HEIGHT}`} preserveAspectRatio="none" role="img">
        {known.map((point, i) => (
          <rect
            key={point[0]}
            className="hai-bar-running"
            x={((point[0]! - found.start) / found.step) * width}
            width={width + 0.5}
            y={HEIGHT * (1 - values[i]! / top)}
            height={(HEIGHT * values[i]!) / top}
          >
            <title>{`${new Date(point[0]! * 1000).toLocaleString()} ${quantity.show(values[i]!)}`}</title>
          </rect>
        ))}
      </svg>
    </figure>
  );
}

function gib(value: number): string {
  return `${(value / GIB).toFixed(1)} GiB`;
}
