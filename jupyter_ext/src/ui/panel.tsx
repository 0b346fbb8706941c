/** The panel at the left: the state of the connection, and tabs. */
import { ReactWidget } from '@jupyterlab/ui-components';
import * as React from 'react';

import { Messages, Quotas } from './account';
import { Cluster } from './cluster';
import { Containers } from './containers';
import { Context, useStore } from './context';
import { Environments } from './environments';
import { switchTabByArrow } from './common';
import { Tasks } from './tasks';
import { Workspaces } from './workspaces';

export interface PanelState {
  tab: string;
  filter: string;
  /** Optional columns of the rows. */
  columns: string[];
}

const TABS: ReadonlyArray<readonly [string, string]> = [
  ['tasks', 'Tasks'],
  ['containers', 'Containers'],
  ['cluster', 'Cluster'],
  ['quotas', 'Quotas'],
  ['environments', 'Envs'],
  ['workspaces', 'Workspaces'],
  ['messages', 'Messages']
];

/** Draws only while it is visible; calls `save` with its tab, filter and columns. */
export class Panel extends ReactWidget {
  constructor(
    private context: Context,
    private state: PanelState,
    private save: (state: PanelState) => void
  ) {
    super();
    this.addClass('hai-panel');
  }

  /** Shows a tab. */
  showTab(tab: string): void {
    this.restore({ ...this.state, tab });
    this.save(this.state);
  }

  /** Shows a saved state. */
  restore(state: PanelState): void {
    this.state = { ...this.state, ...state };
    this.update();
  }

  protected override render(): JSX.Element {
    return (
      <Body
        context={this.context}
        state={this.state}
        onState={state => {
          this.state = state;
          this.save(state);
          this.update();
        }}
      />
    );
  }
}

function Body(props: { context: Context; state: PanelState; onState: (state: PanelState) => void }): JSX.Element {
  const { context, state, onState } = props;
  useStore(context);
  const unread = context.unread.count();
  return (
    <div className="hai-body">
      <Header context={context} />
      <div className="hai-tabs" role="tablist" onKeyDown={switchTabByArrow}>
        {TABS.map(([id, label]) => (
          <button
            key={id}
            role="tab"
            className="hai-tab-button"
            aria-selected={state.tab === id}
            onClick={() => onState({ ...state, tab: id })}
          >
            {context.translate(label)}
            {id === 'messages' && unread > 0 && <span className="hai-badge">{unread}</span>}
          </button>
        ))}
      </div>
      {state.tab === 'tasks' && (
        <Tasks context={context} filter={state.filter} columns={state.columns} onChange={next => onState({ ...state, ...next })} />
      )}
      {state.tab === 'containers' && <Containers context={context} />}
      {state.tab === 'cluster' && <Cluster context={context} />}
      {state.tab === 'quotas' && <Quotas context={context} />}
      {state.tab === 'environments' && <Environments context={context} />}
      {state.tab === 'workspaces' && <Workspaces context={context} />}
      {state.tab === 'messages' && <Messages context={context} />}
    </div>
  );
}

function Header(props: { context: Context }): JSX.Element {
  const { context } = props;
  const { link, notice } = context.store;
  const [mark, text] = connection(context);
  const numbers = context.store.counts();
  return (
    <header className="hai-header">
      <div className="hai-pair">
        <span className="hai-cluster" title={text}>
          <span className={`hai-dot hai-dot-${mark}`} aria-hidden="true" /> {text}
        </span>
        <button className="hai-button hai-primary" onClick={() => context.shell.submit()}>
          {context.translate('Submit')}
        </button>
      </div>
      {context.store.complete && (
        <div className="hai-dim">
          {context.translate('{running} running · {waiting} waiting · {busy}/{nodes} nodes held', numbers)}
        </div>
      )}
      {!link.up && link.reason !== 'CONNECTING' && (
        <div className="hai-failed" role="alert">
          <div>{link.message}</div>
          {link.hint && <div className="hai-dim">{link.hint}</div>}
          {context.store.complete && <div>{context.translate('What is shown is old.')}</div>}
        </div>
      )}
      {context.me()?.visitor && (
        <div className="hai-notice" role="note">
          {context.translate('This container is of {user}. What you do in it, you do as {user}.', { user: context.me()!.user })}
        </div>
      )}
      {notice && notice.ends_at * 1000 > Date.now() && (
        <div className="hai-notice" role="alert">
          {context.translate('This container will be taken back at {time}: {reason}', {
            time: new Date(notice.ends_at * 1000).toLocaleTimeString(),
            reason: notice.reason
          })}
        </div>
      )}
    </header>
  );
}

function connection(context: Context): [string, string] {
  const { translate, feed, store } = context;
  if (feed.state === 'lost') {
    return ['bad', translate('Jupyter server lost')];
  }
  if (store.link.up) {
    const name = context.me()?.cluster || 'HAI';
    return ['good', feed.state === 'polling' ? translate('{name} (polling)', { name }) : name];
  }
  return store.link.reason === 'CONNECTING' ? ['wait', translate('Connecting …')] : ['bad', translate('Not connected')];
}
