/** A menu of optional columns, and the current usage of tasks, which is requested while the list is visible. */
import * as React from 'react';

import { columns, showUsage } from '../model/columns';
import { TaskRow } from '../model/types';
import { Point } from '../model/usage';
import { Context } from './context';

const REFRESH_SECONDS = 20;
const MAX_TASKS = 100;

/** A button that opens the menu. */
export function Columns(props: { context: Context; chosen: readonly string[]; onChange: (chosen: string[]) => void }): JSX.Element {
  const { context, chosen, onChange } = props;
  const withToggled = (name: string) => (chosen.includes(name) ? chosen.filter(each => each !== name) : [...chosen, name]);
  const [open, setOpen] = React.useState(false);
  const title = context.translate('Columns');
  return (
    <>
      <button className="hai-button hai-button-small" title={title} aria-label={title} aria-expanded={open} onClick={() => setOpen(!open)}>
        ▤
      </button>
      {open && (
        <div className="hai-columns" role="group" aria-label={title}>
          {columns.map(({ name, label }) => (
            <label key={name} className="hai-check">
              <input type="checkbox" checked={chosen.includes(name)} onChange={() => onChange(withToggled(name))} /> {context.translate(label)}
            </label>
          ))}
        </div>
      )}
    </>
  );
}

/** Returns the current usage by task, of the first running tasks of the list, while a column shows it. */
export function useCurrentUsage(context: Context, rows: readonly TaskRow[], chosen: readonly string[]): Record<string, Point> {
  const [usage, setUsage] = React.useState<Record<string, Point>>({});
  const ids = showUsage(chosen) ? rows.filter(row => row.state === 'RUNNING').slice(0, MAX_TASKS).map(row => row.id) : [];
  const key = ids.join(',');
  React.useEffect(() => {
    const loadUsage = () => ids.length > 0 && !document.hidden && context.api.currentUsage(ids).then(setUsage, () => undefined);
    void loadUsage();
    const timer = window.setInterval(loadUsage, REFRESH_SECONDS * 1000);
    return () => window.clearInterval(timer);
  }, [key]);
  return usage;
}
