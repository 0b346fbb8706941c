/** Commands that the user can copy to reach a dev container from another machine. */
import { Clipboard } from '@jupyterlab/apputils';
import * as React from 'react';

import { Context } from './context';

/** The commands contain no token; `hai` has its own. */
export function AccessCommands(props: { context: Context; id: number }): JSX.Element {
  const { context, id } = props;
  const lines: ReadonlyArray<readonly [string, string]> = [
    ['A terminal in it', `hai shell ${id}`],
    ['Its JupyterLab at localhost:8888', `hai port-forward ${id} 8888:jupyter`]
  ];
  return (
    <details className="hai-reach">
      <summary>{context.translate('From your own machine')}</summary>
      {lines.map(([label, line]) => (
        <div key={line} title={context.translate(label)}>
          <code>{line}</code>{' '}
          <button className="hai-button hai-button-small" onClick={() => Clipboard.copyToSystem(line)}>
            {context.translate('Copy')}
          </button>
        </div>
      ))}
    </details>
  );
}
