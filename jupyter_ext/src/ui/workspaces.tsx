/** The tab of workspaces: the one of the open folder, with its state on the cluster, and all others. */
import * as React from 'react';

import { Sync } from '../model/api_types';
import { bytes } from '../model/format';
import { Context, useLoaded } from './context';
import { Empty, Failed, Reload } from './common';

/** Directories that are synced with the cluster. */
export function Workspaces(props: { context: Context }): JSX.Element {
  const { context } = props;
  const status = useLoaded(() => context.api.workspaces(), [context.store.link.up]);
  return (
    <div className="hai-tab hai-scroll">
      <Folder context={context} onDone={status.reload} />
      <Reload context={context} onClick={status.reload} />
      <Failed error={status.error} context={context} />
      {status.value?.length === 0 && (
        <Empty>{context.translate('No workspaces. `haiworkspace init` makes one of a directory.')}</Empty>
      )}
      {status.value?.map(workspace => (
        <div className="hai-card" key={workspace.name} title={workspace.path}>
          <div className="hai-pair">
            <b>{workspace.name}</b>
            <span className="hai-dim">{context.translate('revision {n}', { n: workspace.revision })}</span>
          </div>
          <div className="hai-dim">
            {context.translate('{n} files', { n: workspace.files })} · {bytes(Number(workspace.size_bytes))} ·{' '}
            {workspace.update_time ? new Date(workspace.update_time).toLocaleString() : context.translate('never pushed')}
          </div>
          {workspace.lease?.holder && <div>{context.translate('being written by {who}', { who: workspace.lease.holder })}</div>}
        </div>
      ))}
    </div>
  );
}

/** What would be pushed and pulled in the open folder, and buttons to do so. */
function Folder(props: { context: Context; onDone: () => void }): JSX.Element | null {
  const { context, onDone } = props;
  const { translate } = context;
  const path = context.shell.currentFolder();
  const status = useLoaded(() => context.api.workspace(path), [path, context.store.link.up]);
  const [busy, setBusy] = React.useState('');
  const [failure, setFailure] = React.useState<Error | null>(null);
  const [done, setDone] = React.useState<Sync | null>(null);
  const sync = async (verb: string) => {
    setBusy(verb);
    setFailure(null);
    setDone(null);
    try {
      setDone(await context.api.sync(path, verb));
    } catch (error) {
      setFailure(error as Error);
    }
    setBusy('');
    status.reload();
    onDone();
  };
  if (status.value && !status.value.name) {
    return <p className="hai-dim">{translate('The open folder is in no workspace.')}</p>;
  }
  const { name, conflicts = [] } = status.value ?? {};
  const buttons: ReadonlyArray<readonly [string, string]> = [
    ['push', 'Push'],
    ['pull', 'Pull'],
    ['sync', 'Both']
  ];
  return (
    <section className="hai-card hai-folder" aria-busy={busy !== ''}>
      <div className="hai-pair">
        <b>{name ? translate('This folder: {name}', { name }) : translate('Loading …')}</b>
        <Reload context={context} onClick={status.reload} />
      </div>
      {status.value && <Differences context={context} status={status.value} />}
      <Failed error={failure ?? status.error} context={context} />
      <Conflicts context={context} paths={conflicts} />
      {done && <Done context={context} done={done} />}
      <div className="hai-actions">
        {buttons.map(([verb, label]) => (
          <button key={verb} className="hai-button" disabled={!name || busy !== ''} onClick={() => void sync(verb)}>
            {busy === verb ? translate('Syncing …') : translate(label)}
          </button>
        ))}
      </div>
    </section>
  );
}

function Differences(props: { context: Context; status: Sync }): JSX.Element {
  const { translate } = props.context;
  const { uploaded = 0, downloaded = 0, revision = 0, daemon } = props.status;
  const even = uploaded + downloaded === 0;
  return (
    <div className="hai-dim">
      {translate('revision {n}', { n: revision })} ·{' '}
      {even ? translate('in sync') : translate('{up} to push, {down} to pull', { up: uploaded, down: downloaded })}
      {daemon && ` · ${translate('kept in sync by a daemon')}`}
    </div>
  );
}

function Conflicts(props: { context: Context; paths: string[] }): JSX.Element | null {
  const { context, paths } = props;
  if (paths.length === 0) {
    return null;
  }
  return (
    <div className="hai-failed" role="alert">
      <div>{context.translate('Changed on both sides; nothing is overwritten:')}</div>
      <ul>
        {paths.map(path => (
          <li key={path}>{path}</li>
        ))}
      </ul>
      <div className="hai-dim">{context.translate('`haiworkspace resolve` in a terminal settles it.')}</div>
    </div>
  );
}

function Done(props: { context: Context; done: Sync }): JSX.Element {
  const { uploaded = 0, downloaded = 0, refused, problems = {} } = props.done;
  const { translate } = props.context;
  const problemEntries = Object.entries(problems);
  return (
    <div role="status">
      {refused ? translate('Nothing was changed.') : translate('{up} pushed, {down} pulled', { up: uploaded, down: downloaded })}
      {refused === 'many removals' && <div className="hai-dim">{translate('It would remove most files; do it in a terminal if that is meant.')}</div>}
      {problemEntries.length > 0 && (
        <ul className="hai-dim">
          {problemEntries.map(([path, why]) => (
            <li key={path}>
              {path}: {why}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
