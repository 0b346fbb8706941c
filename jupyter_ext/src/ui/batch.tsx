/** Actions on several selected tasks, with the result of each. */
import * as React from 'react';

import { Result, runOnEach } from '../model/batch';
import { TaskRow } from '../model/types';
import { verbs } from '../model/format';
import { Context } from './context';
import { dependentsNote } from './common';

const LABELS: ReadonlyArray<readonly [string, string]> = [
  ['suspend', 'Suspend'],
  ['resume', 'Resume'],
  ['stop', 'Stop'],
  ['again', 'Submit again']
];

/** Buttons for the marked tasks; each applies to the tasks for which the action is possible. */
export function Batch(props: { context: Context; marked: TaskRow[]; onClear: () => void }): JSX.Element {
  const { context, marked, onClear } = props;
  const { translate } = context;
  const [busy, setBusy] = React.useState(false);
  const [results, setResults] = React.useState<Array<Result<TaskRow>>>([]);
  const [tag, setTag] = React.useState('');
  const run = async (rows: TaskRow[], verb: string, body: Record<string, unknown>) => {
    setBusy(true);
    const apply = async (row: TaskRow) => context.store.put(await context.api.verb(row.id, verb, body));
    // Tasks are stopped one by one, the newest first, because the end of a task starts those that wait for it.
    const found = await (verb === 'stop' ? runOnEach([...rows].sort((a, b) => b.id - a.id), apply, 1) : runOnEach(rows, apply));
    context.store.changed();
    setResults(found);
    setBusy(false);
  };
  const confirmAndRun = async (rows: TaskRow[], verb: string, label: string) => {
    const text = () => translate('{n} tasks end for good.', { n: rows.length }) + dependentsNote(context, rows.map(row => row.id));
    if (verb !== 'stop' || (await context.shell.confirm(translate('Stop the tasks?'), text(), translate(label)))) {
      await run(rows, verb, verb === 'suspend' ? { hold: true } : {});
    }
  };
  return (
    <div className="hai-bar hai-batch" role="toolbar" aria-busy={busy} aria-label={translate('Marked tasks')}>
      <div className="hai-actions">
        <span>{translate('{n} marked', { n: marked.length })}</span>
        {LABELS.map(([verb, label]) => {
          const rows = marked.filter(row => verbs(row).includes(verb));
          return (
            <button key={verb} className="hai-button hai-button-small" disabled={busy || !rows.length} onClick={() => void confirmAndRun(rows, verb, label)}>
              {translate(label)} {rows.length}
            </button>
          );
        })}
        <button className="hai-button hai-button-small" onClick={onClear}>
          {translate('Unmark')}
        </button>
      </div>
      <form
        className="hai-actions"
        onSubmit={event => {
          event.preventDefault();
          void run(marked, 'tag', { add: tag.split(/\s+/).filter(Boolean) });
        }}
      >
        <input className="hai-input" value={tag} aria-label={translate('Tags to add')} placeholder={translate('Tags to add')} onChange={event => setTag(event.target.value)} />
        <button className="hai-button hai-button-small" disabled={busy || !tag.trim()}>
          {translate('Tag')}
        </button>
      </form>
      <Results context={context} results={results} />
    </div>
  );
}

function Results(props: { context: Context; results: Array<Result<TaskRow>> }): JSX.Element | null {
  const { context, results } = props;
  const failed = results.filter(result => result.error);
  if (!results.length) {
    return null;
  }
  return (
    <div className={failed.length ? 'hai-failed' : 'hai-dim'} role="status">
      {context.translate('{n} done, {failed} refused', { n: results.length - failed.length, failed: failed.length })}
      {failed.map(({ item, error }) => (
        <div key={item.id}>
          #{item.id} {item.name}: {error!.message}
        </div>
      ))}
    </div>
  );
}
