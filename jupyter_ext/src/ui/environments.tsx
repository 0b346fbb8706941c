/** The tab of environments: lists them, creates new ones, and installs kernels. */
import * as React from 'react';

import { Environment } from '../model/api_types';
import { Context, useLoaded } from './context';
import { Empty, Failed, Field, Reload } from './common';

/** Returns private, public, or the group that sees the environment. */
const visibility = (env: Environment): string =>
  env.user_group || env.visibility.replace('ENVIRONMENT_VISIBILITY_', '').toLowerCase();

const stateOf = (env: Environment): string => env.state.replace('ENVIRONMENT_STATE_', '').toLowerCase();

/** Describes an environment in one line, for a list of choices. */
export function aboutEnvironment(env: Environment): string {
  const facts = [stateOf(env), env.python_version && `Python ${env.python_version}`, env.parent, visibility(env)];
  return [...facts, env.lock_hash.slice(0, 12)].filter(Boolean).join(' · ');
}

/** Python environments on the cluster's storage. Long commands run in a terminal, which shows their output. */
export function Environments(props: { context: Context }): JSX.Element {
  const { context } = props;
  const { translate } = context;
  const environments = useLoaded(() => context.api.environments(), [context.store.link.up]);
  const run = (spec: object) =>
    context.api.environmentCommand(spec).then(answer => context.shell.runInTerminal(answer.command), context.shell.fail);
  const mine = (env: Environment) => env.owner === context.me()?.user;
  return (
    <div className="hai-tab hai-scroll">
      <Reload context={context} onClick={environments.reload} />
      <Failed error={environments.error} context={context} />
      {environments.value?.length === 0 && <Empty>{translate('No environments yet.')}</Empty>}
      {environments.value?.map(env => (
        <div className="hai-card" key={`${env.owner}/${env.name}`} title={env.path}>
          <div className="hai-pair">
            <b>{env.name}</b>
            <span className="hai-dim">
              {env.owner} · Python {env.python_version} · {visibility(env)}
            </span>
          </div>
          <div className="hai-dim">
            {env.parent && `${translate('extends')} ${env.parent} · `}
            {translate('{n} packages', { n: env.packages })} · {stateOf(env)} ·{' '}
            <span title={env.lock_hash}>{env.lock_hash.slice(0, 12)}</span>
          </div>
          {env.message && <div className="hai-failed">{env.message}</div>}
          {env.kernel === false && mine(env) && (
            <button className="hai-button hai-button-small" onClick={() => void run({ action: 'kernel', name: env.name })}>
              {translate('Install ipykernel, for a kernel of it')}
            </button>
          )}
        </div>
      ))}
      <NewEnvironment context={context} onCreate={run} />
    </div>
  );
}

/** The form of a new environment; it has only the most important options of `haienv`. */
function NewEnvironment(props: { context: Context; onCreate: (spec: object) => unknown }): JSX.Element {
  const { translate } = props.context;
  const [open, setOpen] = React.useState(false);
  const [name, setName] = React.useState('');
  const [python, setPython] = React.useState('');
  const [packages, setPackages] = React.useState('ipykernel');
  const create = () => props.onCreate({ action: 'create', name, python, packages: packages.split(/\s+/).filter(Boolean) });
  if (!open) {
    return (
      <button className="hai-button" onClick={() => setOpen(true)}>
        {translate('New environment …')}
      </button>
    );
  }
  return (
    <form
      className="hai-card"
      onSubmit={event => {
        event.preventDefault();
        void create();
        setOpen(false);
      }}
    >
      <div className="hai-fields">
        <Field label={translate('Name')}>
          <input className="hai-input" required autoFocus value={name} onChange={event => setName(event.target.value)} />
        </Field>
        <Field label={translate('Python (empty: extend the one here)')}>
          <input className="hai-input" placeholder="3.11" value={python} onChange={event => setPython(event.target.value)} />
        </Field>
        <Field label={translate('Packages')} wide>
          <input className="hai-input" value={packages} onChange={event => setPackages(event.target.value)} />
        </Field>
      </div>
      <div className="hai-actions">
        <button className="hai-button hai-primary">{translate('Create in a terminal')}</button>
        <button type="button" className="hai-button" onClick={() => setOpen(false)}>
          {translate('Cancel')}
        </button>
      </div>
    </form>
  );
}
