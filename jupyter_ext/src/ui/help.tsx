/** Lists all commands with their keys, and links to the manual. */
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Context, useLoaded } from './context';

const COMMANDS: ReadonlyArray<readonly [string, string]> = [
  ['hai:submit', 'Submit the file in front: a script, a notebook, a task file'],
  ['hai:submit-cells', 'Submit chosen cells of the notebook in front'],
  ['hai:open-panel', 'Tasks: filter, follow, suspend, resume, stop'],
  ['hai:open-containers', 'Dev containers: create, open, put away, renew'],
  ['hai:open-cluster', 'The cluster, node by node'],
  ['hai:open-environments', 'Environments, and kernels for them'],
  ['hai:open-workspaces', 'Workspaces: push and pull the open folder'],
  ['hai:open-messages', 'Messages of operators'],
  ['hai:notebook-to-script', 'Turn the notebook in front into a script'],
  ['hai:clear-outputs', 'Clear the outputs of the notebook in front'],
  ['hai:diagnostics', 'What somebody who helps wants to know']
];

const KEYS: ReadonlyArray<readonly [string, string]> = [
  ['↑ ↓ PgUp PgDn Home End', 'move in the list'],
  ['Enter', 'open the task'],
  ['l', 'open its log'],
  ['x', 'mark it, for several at once'],
  ['Ctrl A, Esc', 'mark all, or none'],
  ['Alt+C', 'copy the names of its nodes'],
  ['Delete', 'stop it, after a question']
];

const MANUAL_PAGES: ReadonlyArray<readonly [string, string]> = [
  ['first-steps', 'First steps'],
  ['jupyter', 'JupyterLab'],
  ['programs', 'Programs that can be suspended'],
  ['task-schema', 'Task files'],
  ['containers', 'Dev containers'],
  ['environments', 'Environments'],
  ['workspaces', 'Workspaces']
];

export class Help extends ReactWidget {
  constructor(private context: Context) {
    super();
    this.addClass('hai-page');
  }

  protected override render(): JSX.Element {
    return <Body context={this.context} />;
  }
}

function Body(props: { context: Context }): JSX.Element {
  const { translate, shell, api } = props.context;
  const manual = useLoaded(() => api.manual(), []).value?.url ?? '';
  return (
    <div className="hai-tab hai-scroll hai-help">
      <section className="hai-card">
        <h3>{translate('Do')}</h3>
        {COMMANDS.map(([command, text]) => (
          <div key={command} className="hai-pair">
            <button className="hai-link" onClick={() => shell.run(command)}>
              {translate(text)}
            </button>
            <kbd>{shell.keys(command)}</kbd>
          </div>
        ))}
      </section>
      <section className="hai-card">
        <h3>{translate('Keys in the list of tasks')}</h3>
        {KEYS.map(([keys, text]) => (
          <div key={keys} className="hai-pair">
            <span>{translate(text)}</span>
            <kbd>{keys}</kbd>
          </div>
        ))}
      </section>
      {manual && (
        <section className="hai-card">
          <h3>{translate('Read')}</h3>
          {MANUAL_PAGES.map(([name, text]) => (
            <div key={name}>
              <button className="hai-link" onClick={() => shell.openLink(manual.replace('{page}', name))}>
                {translate(text)}
              </button>
            </div>
          ))}
        </section>
      )}
    </div>
  );
}
