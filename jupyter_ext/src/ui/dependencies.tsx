/** Lists the tasks that must end before this one, and those that wait for its end, with links. */
import * as React from 'react';

import { TaskRow } from '../model/types';
import { Context } from './context';
import { Status, TaskLink } from './common';

const MAX_LINKS = 20;

export function Dependencies(props: { context: Context; row: TaskRow; detail: any }): JSX.Element | null {
  const { context, row, detail } = props;
  const requested: Array<{ task: string }> = detail?.task?.spec?.options?.after ?? [];
  // Tasks that it still waits for come first. A canceled task may have passed on others.
  const before = [...new Set([...(row.awaited ?? []), ...requested.map(after => Number(after.task))])];
  const dependents = context.store.dependents([row.id]).map(task => task.id);
  if (!before.length && !dependents.length) {
    return null;
  }
  return (
    <section className="hai-card">
      <Links context={context} title={context.translate('Starts after')} ids={before} />
      <Links context={context} title={context.translate('Wait for its end')} ids={dependents} />
    </section>
  );
}

function Links(props: { context: Context; title: string; ids: readonly number[] }): JSX.Element | null {
  const { context, title, ids } = props;
  if (!ids.length) {
    return null;
  }
  return (
    <>
      <h3>{title}</h3>
      <ul aria-label={title}>
        {ids.slice(0, MAX_LINKS).map(id => (
          <li key={id}>
            <Link context={context} id={id} />
          </li>
        ))}
      </ul>
      {ids.length > MAX_LINKS && <div className="hai-dim">{context.translate('and {n} more', { n: ids.length - MAX_LINKS })}</div>}
    </>
  );
}

/** A link with only the number if the store does not have the task: it ended long ago, or belongs to another user. */
function Link(props: { context: Context; id: number }): JSX.Element {
  const { context, id } = props;
  const task = context.store.tasks.get(id);
  if (!task) {
    return <TaskLink context={context} row={{ id, name: `#${id}` }} />;
  }
  return (
    <>
      <TaskLink context={context} row={task} /> #{id} <Status context={context} task={task} />
    </>
  );
}
