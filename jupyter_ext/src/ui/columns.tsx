/** A menu of optional columns, and the current use of tasks, requested while the list is visible. */
import * as React from 'react';

import { columns, needsUse } from '../model/columns';
import { TaskRow } from '../model/types';
import { Point } from '../model/usage';
import { Context } from './context';

const SECONDS = 20;
const MOST = 100;

/** A button that opens the choice. */
export function Columns(props: { context: Context; chosen: readonly string[]; onChange: (chosen: string[]) => void }): JSX.Element {
  const { context, chosen, onChange } = props;
  const toggled = (name: string) => (chosen.includes(name) ? chosen.filter(one => one !== name) : [...chosen, name]);
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
              <input type="checkbox" checked={chosen.includes(name)} onChange={() => onChange(toggled(name))} /> {context.translate(label)}
            </label>
          ))}
        </div>
      )}
    </>
  );
}

/** By task: of the first that run and are listed, while such a column is chosen. */
export function useUses(context: Context, rows: readonly TaskRow[], chosen: readonly string[]): Record<string, Point> {
  const [uses, setUses] = React.useState<Record<string, Point>>({});
  const ids = needsUse(chosen) ? rows.filter(row => row.state === 'RUNNING').slice(0, MOST).map(row => row.id) : [];
  const key = ids.join(',');
  React.useEffect(() => {
    const loadUses = () => ids.length > 0 && !document.hidden && context.api.uses(ids).then(setUses, () => undefined);
    void loadUses();
    const timer = window.setInterval(loadUses, SECONDS * 1000);
    return () => window.clearInterval(timer);
  }, [key]);
  return uses;
}
