/** Tabs of the user: quotas and messages. */
import * as React from 'react';

import { levelName } from '../model/format';
import { Context, useStore, useLoaded } from './context';
import { Empty, Failed, Meter, Reload } from './common';

/** The quotas of the user, and how much of them is used. */
export function Quotas(props: { context: Context }): JSX.Element {
  const { context } = props;
  useStore(context);
  const { busy } = context.store.counts();
  const me = useLoaded(() => context.api.me(), [busy, context.store.link.up]);
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
        <Empty>{context.translate('No quota limits you.')}</Empty>
      )}
      {quotas.map(quota => (
        <div className="hai-card" key={`${quota.group} ${quota.priority}`}>
          <div className="hai-pair">
            <span>{quota.group}</span>
            <span className="hai-dim">{quota.priority < 0 ? context.translate('all levels') : levelName(quota.priority)}</span>
          </div>
          <Meter used={quota.used} of={quota.nodes} />
        </div>
      ))}
    </div>
  );
}

/** Messages from operators. */
export function Messages(props: { context: Context }): JSX.Element {
  const { context } = props;
  const messages = useLoaded(() => context.api.messages(), [context.store.link.up]);
  React.useEffect(() => {
    if (messages.value) {
      context.unread.markRead();
    }
  }, [messages.value]);
  return (
    <div className="hai-tab hai-scroll">
      <Reload context={context} onClick={messages.reload} />
      <Failed error={messages.error} context={context} />
      {messages.value?.length === 0 && <Empty>{context.translate('No messages.')}</Empty>}
      {messages.value?.map(message => (
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
