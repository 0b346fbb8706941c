/** The tabs about the user: quotas, environments, messages. */
import * as React from 'react';

import { Environment } from '../api';
import { level } from '../model/words';
import { Context, useBoard, useLoaded } from './context';
import { Empty, Failed, Meter, Reload } from './parts';

/** What one may hold, and holds. */
export function Quotas(props: { context: Context }): JSX.Element {
  const { context } = props;
  useBoard(context);
  const { busy } = context.board.numbers();
  const me = useLoaded(() => context.api.me(), [busy, context.board.link.up]);
  const quotas = me.value?.quotas ?? [];
  return (
    <div className="hai-tab hai-scroll">
      <Failed error={me.error} context={context} />
      {me.value && (
        <p>
          <b>{me.value.user}</b> <span className="hai-dim">{me.value.role.toLowerCase()}</span>
        </p>
      )}
      {me.value && quotas.length === 0 && (
        <Empty>{context.say('No quota limits you.')}</Empty>
      )}
      {quotas.map(quota => (
        <div className="hai-card" key={`${quota.group} ${quota.priority}`}>
          <div className="hai-pair">
            <span>{quota.group}</span>
            <span className="hai-dim">{quota.priority < 0 ? context.say('all levels') : level(quota.priority)}</span>
          </div>
          <Meter used={quota.used} of={quota.nodes} />
        </div>
      ))}
    </div>
  );
}

/** Private, public, or the group that it is shown to. */
const seenBy = (env: Environment): string =>
  env.user_group || env.visibility.replace('ENVIRONMENT_VISIBILITY_', '').toLowerCase();

const stateOf = (env: Environment): string => env.state.replace('ENVIRONMENT_STATE_', '').toLowerCase();

/** An environment in one line, for those who choose one. */
export function aboutEnvironment(env: Environment): string {
  const facts = [stateOf(env), env.python_version && `Python ${env.python_version}`, env.parent, seenBy(env)];
  return [...facts, env.lock_hash.slice(0, 12)].filter(Boolean).join(' · ');
}

/** Python environments on the cluster's storage. */
export function Environments(props: { context: Context }): JSX.Element {
  const { context } = props;
  const found = useLoaded(() => context.api.environments(), [context.board.link.up]);
  return (
    <div className="hai-tab hai-scroll">
      <Reload context={context} onClick={found.reload} />
      <Failed error={found.error} context={context} />
      {found.value?.length === 0 && (
        <Empty>{context.say('No environments. `haienv create NAME` makes one.')}</Empty>
      )}
      {found.value?.map(env => (
        <div className="hai-card" key={`${env.owner}/${env.name}`} title={env.path}>
          <div className="hai-pair">
            <b>{env.name}</b>
            <span className="hai-dim">
              {env.owner} · Python {env.python_version} · {seenBy(env)}
            </span>
          </div>
          <div className="hai-dim">
            {env.parent && `${context.say('extends')} ${env.parent} · `}
            {context.say('{n} packages', { n: env.packages })} · {stateOf(env)} ·{' '}
            <span title={env.lock_hash}>{env.lock_hash.slice(0, 12)}</span>
          </div>
          {env.message && <div className="hai-failed">{env.message}</div>}
        </div>
      ))}
    </div>
  );
}

/** What operators say. */
export function Messages(props: { context: Context }): JSX.Element {
  const { context } = props;
  const found = useLoaded(() => context.api.messages(), [context.board.link.up]);
  React.useEffect(() => {
    if (found.value) {
      context.unread.seen();
    }
  }, [found.value]);
  return (
    <div className="hai-tab hai-scroll">
      <Reload context={context} onClick={found.reload} />
      <Failed error={found.error} context={context} />
      {found.value?.length === 0 && <Empty>{context.say('No messages.')}</Empty>}
      {found.value?.map(message => (
        <div className="hai-card" key={message.id}>
          <div className="hai-message">{message.text}</div>
          <div className="hai-dim">
            {message.author} · {new Date(message.create_time).toLocaleString()}
          </div>
        </div>
      ))}
    </div>
  );
}
