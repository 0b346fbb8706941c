/** The ranks of a task with their nodes, and the health of selected nodes. */
import * as React from 'react';

import { rankSilenceText } from '../model/agent_silence';
import { Gpu, gpuText } from '../model/gpus';
import { TaskRow } from '../model/types';
import { Context, useNow } from './context';

interface Props {
  context: Context;
  row: TaskRow;
  ranks: any[];
}

export function Ranks(props: Props): JSX.Element | null {
  const { context, row, ranks } = props;
  const [chosen, setChosen] = React.useState<ReadonlySet<string> | null>(null); // null while the user does not select nodes
  const now = useNow();
  if (ranks.length === 0) {
    return null;
  }
  const withGpus = ranks.some(rank => rank.gpus?.length);
  const toggle = (node: string) => {
    const next = new Set(chosen);
    next.delete(node) || next.add(node);
    setChosen(next);
  };
  return (
    <section className="hai-card">
      <h3>{context.translate('Ranks')}</h3>
      <table className="hai-table">
        <tbody>
          {ranks.map(rank => (
            <tr key={rank.index ?? 0}>
              {chosen && (
                <td>
                  <input type="checkbox" aria-label={rank.node} checked={chosen.has(rank.node)} onChange={() => toggle(rank.node)} />
                </td>
              )}
              <td>{rank.index ?? 0}</td>
              <td>{rank.node}</td>
              <td>{(rank.state ?? '').replace('RANK_STATE_', '')}</td>
              <td className={rank.silent_since_time ? 'hai-tone-bad' : ''}>{rankSilenceText(context.translate, rank.silent_since_time, now) || (rank.exit_meaning ?? (rank.exit_code === undefined ? '' : `exit ${rank.exit_code}`))}</td>
              {withGpus && (
                <td>
                  {(rank.gpus ?? []).map((gpu: Gpu) => (
                    <div key={gpu.index ?? 0}>{gpuText(gpu)}</div>
                  ))}
                </td>
              )}
              <td>
                <button className="hai-button hai-button-small" onClick={() => context.shell.openTask(row.id, 'logs', String(rank.index ?? 0))}>
                  {context.translate('Logs')}
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <NodeCheck context={context} row={row} nodes={ranks.map(rank => rank.node)} chosen={chosen} onChoose={setChosen} />
    </section>
  );
}

interface CheckProps {
  context: Context;
  row: TaskRow;
  nodes: string[];
  chosen: ReadonlySet<string> | null;
  onChoose: (chosen: ReadonlySet<string> | null) => void;
}

/** Submits a check of the selected nodes. Its task waits for the nodes like any other, so it disturbs no running task. */
function NodeCheck(props: CheckProps): JSX.Element {
  const { context, row, nodes, chosen, onChoose } = props;
  const { translate, shell, api, store } = context;
  const check = async () => {
    try {
      const task = await api.checkNodes([...chosen!], row.group ?? '');
      store.put(task);
      store.changed();
      onChoose(null);
      shell.openTask(task.id, 'logs');
    } catch (error) {
      shell.fail(error);
    }
  };
  if (!chosen) {
    return (
      <button className="hai-button hai-button-small" onClick={() => onChoose(new Set(nodes))}>
        {translate('Check nodes …')}
      </button>
    );
  }
  return (
    <div className="hai-actions">
      <button className="hai-button hai-button-small hai-primary" disabled={chosen.size === 0} onClick={() => void check()}>
        {translate('Check {n} nodes by a task', { n: chosen.size })}
      </button>
      <button className="hai-button hai-button-small" onClick={() => onChoose(null)}>
        {translate('Cancel')}
      </button>
    </div>
  );
}
