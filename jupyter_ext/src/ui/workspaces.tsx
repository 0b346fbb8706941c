/** The tab of workspaces: the folder that is open here, with its other side on the cluster, and all of them. */
import * as React from 'react';

import { Sync } from '../model/answers';
import { bytes } from '../model/words';
import { Context, useLoaded } from './context';
import { Empty, Failed, Reload } from './parts';

/** Directories that are kept the same here and on the cluster. */
export function Workspaces(props: { context: Context }): JSX.Element {
  const { context } = props;
  const found = useLoaded(() => context.api.workspaces(), [context.board.link.up]);
  return (
    <div className="hai-tab hai-scroll">
      <Folder context={context} onDone={found.reload} />
      <Reload context={context} onClick={found.reload} />
      <Failed error={found.error} context={context} />
      {found.value?.length === 0 && (
        <Empty>{context.say('No workspaces. `haiworkspace init` makes one of a directory.')}</Empty>
      )}
      {found.value?.map(one => (
        <div className="hai-card" key={one.name} title={one.path}>
          <div className="hai-pair">
            <b>{one.name}</b>
            <span className="hai-dim">{context.say('revision {n}', { n: one.revision })}</span>
          </div>
          <div className="hai-dim">
            {context.say('{n} files', { n: one.files })} · {bytes(Number(one.size_bytes))} ·{' '}
            {one.update_time ? new Date(one.update_time).toLocaleString() : context.say('never pushed')}
          </div>
          {one.lease?.holder && <div>{context.say('being written by {who}', { who: one.lease.holder })}</div>}
        </div>
      ))}
    </div>
  );
}

/** What could be pushed and pulled here, and the buttons for it. */
function Folder(props: { context: Context; onDone: () => void }): JSX.Element | null {
  const { context, onDone } = props;
  const { say } = context;
  const path = context.shell.folder();
  const found = useLoaded(() => context.api.workspace(path), [path, context.board.link.up]);
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
    found.reload();
    onDone();
  };
  if (found.value && !found.value.name) {
    return <p className="hai-dim">{say('The open folder is in no workspace.')}</p>;
  }
  const { name, conflicts = [] } = found.value ?? {};
  const buttons: ReadonlyArray<readonly [string, string]> = [
    ['push', 'Push'],
    ['pull', 'Pull'],
    ['sync', 'Both']
  ];
  return (
    <section className="hai-card hai-folder" aria-busy={busy !== ''}>
      <div className="hai-pair">
        <b>{name ? say('This folder: {name}', { name }) : say('Loading …')}</b>
        <Reload context={context} onClick={found.reload} />
      </div>
      {found.value && <Differences context={context} found={found.value} />}
      <Failed error={failure ?? found.error} context={context} />
      <Conflicts context={context} paths={conflicts} />
      {done && <Done context={context} done={done} />}
      <div className="hai-actions">
        {buttons.map(([verb, label]) => (
          <button key={verb} className="hai-button" disabled={!name || busy !== ''} onClick={() => void sync(verb)}>
            {busy === verb ? say('Syncing …') : say(label)}
          </button>
        ))}
      </div>
    </section>
  );
}

function Differences(props: { context: Context; found: Sync }): JSX.Element {
  const { say } = props.context;
  const { uploaded = 0, downloaded = 0, revision = 0, daemon } = props.found;
  const even = uploaded + downloaded === 0;
  return (
    <div className="hai-dim">
      {say('revision {n}', { n: revision })} ·{' '}
      {even ? say('in sync') : say('{up} to push, {down} to pull', { up: uploaded, down: downloaded })}
      {daemon && ` · ${say('kept in sync by a daemon')}`}
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
      <div>{context.say('Changed on both sides; nothing is overwritten:')}</div>
      <ul>
        {paths.map(path => (
          <li key={path}>{path}</li>
        ))}
      </ul>
      <div className="hai-dim">{context.say('`haiworkspace resolve` in a terminal settles it.')}</div>
    </div>
  );
}

function Done(props: { context: Context; done: Sync }): JSX.Element {
  const { uploaded = 0, downloaded = 0, refused, problems = {} } = props.done;
  const { say } = props.context;
  const left = Object.entries(problems);
  return (
    <div role="status">
      {refused ? say('Nothing was changed.') : say('{up} pushed, {down} pulled', { up: uploaded, down: downloaded })}
      {refused === 'many removals' && <div className="hai-dim">{say('It would remove most files; do it in a terminal if that is meant.')}</div>}
      {left.length > 0 && (
        <ul className="hai-dim">
          {left.map(([path, why]) => (
            <li key={path}>
              {path}: {why}
            </li>
          ))}
        </ul>
      )}
    </div>
  );
}
