/** The tab of dev containers with their actions, and a form for a new one. */
import * as React from 'react';

import { Container, Service } from '../model/api_types';
import { TaskRow } from '../model/types';
import { durationText, span, verbs } from '../model/format';
import { ContainerForm } from './container_form';
import { Context, useStore, useLoaded, useNow } from './context';
import { Empty, Failed, Status, TaskLink, runVerb } from './common';
import { AccessCommands } from './access_commands';

const STARTING_SECONDS = 2; // between two requests while a service starts
const REFRESH_SECONDS = 30;

/** Lists the user's containers, then those of others that are shared or that an operator sees. */
export function Containers(props: { context: Context }): JSX.Element {
  const { context } = props;
  useStore(context);
  const [creating, setCreating] = React.useState(false);
  const me = context.me()?.user;
  const all = context.store.rows.filter(row => row.type === 'jupyter' && row.state !== 'FINISHED');
  const rows = [...all.filter(row => row.user === me), ...all.filter(row => row.user !== me)];
  return (
    <div className="hai-tab hai-scroll">
      {creating ? (
        <ContainerForm context={context} onDone={() => setCreating(false)} />
      ) : (
        <button className="hai-button" onClick={() => setCreating(true)}>
          {context.translate('New container …')}
        </button>
      )}
      {rows.length === 0 && !creating && (
        <Empty>{context.translate('No dev containers. One is JupyterLab on the cluster, with files that stay.')}</Empty>
      )}
      {rows.map(row => (
        <Card key={row.id} context={context} row={row} mine={row.user === me || context.me()?.role !== 'USER'} />
      ))}
    </div>
  );
}

function Card(props: { context: Context; row: TaskRow; mine: boolean }): JSX.Element {
  const { context, row, mine } = props;
  const now = useNow();
  const [updated, setUpdated] = React.useState<Container | null>(null);
  const found = useLoaded(() => context.api.container(row.id), [row.version]);
  const container = updated ?? found.value ?? {};
  const services = container.services ?? [];
  const starting = row.state === 'RUNNING' && services.some(service => serviceState(service) === 'starting');
  React.useEffect(() => setUpdated(null), [found.value]);
  React.useEffect(() => {
    const again = () => !document.hidden && found.reload();
    const timer = window.setInterval(again, (starting ? STARTING_SECONDS : REFRESH_SECONDS) * 1000);
    return () => window.clearInterval(timer);
  }, [starting]);
  const run = async (work: Promise<Container>) => {
    try {
      setUpdated(await work);
    } catch (error) {
      context.shell.fail(error);
    }
  };
  return (
    <div className="hai-card hai-container">
      <div className="hai-pair">
        <TaskLink context={context} row={row} />
        <Status task={row} context={context} />
      </div>
      <div className="hai-dim">
        #{row.id} · {mine ? '' : `${row.user} · `}
        {row.group} · {durationText(row, now)}
      </div>
      {row.why && <div className="hai-dim">{row.why}</div>}
      <Failed error={found.error} context={context} />
      <Lifetime context={context} container={container} now={now} />
      {row.state === 'RUNNING' &&
        services.map(service => (
          <ServiceLine
            key={service.name}
            context={context}
            service={service}
            onOpen={service.url === container.url ? null : () => void openContainer(context, row.id, service.name)}
            onAct={mine ? action => void run(context.api.service(row.id, service.name, action)) : null}
          />
        ))}
      {mine && row.state === 'RUNNING' && <AccessCommands context={context} id={row.id} />}
      <div className="hai-actions">
        <button className="hai-button hai-primary" onClick={() => void openContainer(context, row.id, '')}>
          {context.translate('Open')}
        </button>
        {mine && <StopAndStart context={context} row={row} />}
        {mine && container.ends_at && (
          <button className="hai-button" onClick={() => void run(context.api.renewContainer(row.id))}>
            {context.translate('Renew')}
          </button>
        )}
        {mine && (
          <button className="hai-button" onClick={() => void deleteContainer(context, row)}>
            {context.translate('Delete')}
          </button>
        )}
      </div>
    </div>
  );
}

/** Stop and Start, which suspend and resume the task of the container. */
function StopAndStart(props: { context: Context; row: TaskRow }): JSX.Element {
  const { context, row } = props;
  const labels: Record<string, string> = { suspend: 'Stop', resume: 'Start' };
  return (
    <>
      {verbs(row)
        .filter(verb => labels[verb])
        .map(verb => (
          <button key={verb} className="hai-button" onClick={() => void runVerb(context, row, verb)}>
            {context.translate(labels[verb]!)}
          </button>
        ))}
    </>
  );
}

function Lifetime(props: { context: Context; container: Container; now: number }): JSX.Element {
  const { context, container, now } = props;
  const { translate } = context;
  const until = (time: string) => ({ span: span(Date.parse(time) / 1000 - now) });
  return (
    <>
      {container.notice && container.notice_until && (
        <div className="hai-notice" role="alert">
          {translate('It has to leave in {span}: {reason}', { ...until(container.notice_until), reason: container.notice })}
        </div>
      )}
      {container.ends_at && <div className="hai-dim">{translate('It is put away in {span}.', until(container.ends_at))}</div>}
      {(container.idle_seconds ?? 0) >= 60 && (
        <div className="hai-dim">{translate('Nobody has used it for {span}.', { span: span(container.idle_seconds ?? 0) })}</div>
      )}
    </>
  );
}

function ServiceLine(props: {
  context: Context;
  service: Service;
  onOpen: (() => void) | null;
  onAct: ((action: string) => void) | null;
}): JSX.Element {
  const { context, service, onOpen, onAct } = props;
  const state = serviceState(service);
  const down = state === 'stopped' || state === 'failed';
  const actions = down ? ['start'] : ['restart', 'stop'];
  const labels: Record<string, string> = { start: 'Start', restart: 'Restart', stop: 'Stop' };
  return (
    <div className="hai-service">
      <div className="hai-pair">
        <span>
          {service.name} <span className={state === 'failed' ? 'hai-full-text' : 'hai-dim'}>{context.translate(state)}</span>
        </span>
        <span className="hai-verbs">
          {service.url && onOpen && (
            <button className="hai-button hai-button-small" aria-label={`${context.translate('Open')} ${service.name}`} onClick={onOpen}>
              {context.translate('Open')}
            </button>
          )}
          {onAct &&
            actions.map(action => (
              <button
                key={action}
                className="hai-button hai-button-small"
                aria-label={`${context.translate(labels[action]!)} ${service.name}`}
                onClick={() => onAct(action)}
              >
                {context.translate(labels[action]!)}
              </button>
            ))}
        </span>
      </div>
      {service.message && <div className="hai-dim">{service.message}</div>}
    </div>
  );
}

function serviceState(service: Service): string {
  return (service.state ?? 'SERVICE_STATE_STARTING').replace('SERVICE_STATE_', '').toLowerCase();
}

async function openContainer(context: Context, id: number, service: string): Promise<void> {
  try {
    context.shell.openLink((await context.api.openContainer(id, service)).link);
  } catch (error) {
    context.shell.fail(error);
  }
}

async function deleteContainer(context: Context, row: TaskRow): Promise<void> {
  const { translate, shell } = context;
  const text = translate('{name} ends for good, and its files are removed.', { name: row.name });
  if (await shell.confirm(translate('Delete the container?'), text, translate('Delete'))) {
    await context.api.deleteContainer(row.id).catch(shell.fail);
  }
}
