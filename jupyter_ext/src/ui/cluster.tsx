/** The tab of the cluster: node groups, and a cell for each node. */
import * as React from 'react';

import { hasSilentAgent, silenceText } from '../model/agent_silence';
import { SILENT } from '../model/state_style';
import { NodeRow, Tenant } from '../model/types';
import { Context, useStore, useLoaded, useNow } from './context';
import { Empty, Failed, Meter } from './common';

/** Shows the nodes of the store; requests queue lengths when the tasks of nodes change. */
export function Cluster(props: { context: Context }): JSX.Element {
  const { context } = props;
  useStore(context);
  const { busy, waiting } = context.store.counts();
  const groups = useLoaded(() => context.api.groups(), [busy, waiting, context.store.id]);
  const byGroup = groupNodes([...context.store.nodes.values()]);
  return (
    <div className="hai-tab hai-scroll">
      <Failed error={groups.error} context={context} />
      {byGroup.size === 0 && <Empty>{context.translate('No nodes are known.')}</Empty>}
      {[...byGroup].map(([name, nodes]) => (
        <section key={name} className="hai-card">
          <h3>{name}</h3>
          <Meter calm used={nodes.filter(n => n.tenants.length > 0).length} of={nodes.length} text={groupText(context, name, nodes, groups.value)} />
          <div className="hai-cells">
            {nodes.map(node => (
              <NodeCell key={node.name} node={node} context={context} />
            ))}
          </div>
        </section>
      ))}
      <p className="hai-dim">{context.translate('□ free · ■ held · ◌ agent silent · ╱ cordoned · ✗ not ready')}</p>
    </div>
  );
}

function groupText(context: Context, name: string, nodes: NodeRow[], groups: Array<{ name: string; waiting_tasks: number }> | null): string {
  const busy = nodes.filter(n => n.tenants.length > 0).length;
  const waiting = groups?.find(group => group.name === name)?.waiting_tasks ?? 0;
  return context.translate('{busy} of {all} nodes held, {waiting} waiting', { busy, all: nodes.length, waiting });
}

function groupNodes(nodes: NodeRow[]): Map<string, NodeRow[]> {
  const groups = new Map<string, NodeRow[]>();
  for (const node of nodes.sort((a, b) => a.name.localeCompare(b.name, undefined, { numeric: true }))) {
    groups.set(node.group, [...(groups.get(node.group) ?? []), node]);
  }
  return groups;
}

/** A cell; only one that counts seconds is drawn each second. */
function NodeCell(props: { node: NodeRow; context: Context }): JSX.Element {
  return hasSilentAgent(props.node) ? <CountingCell {...props} /> : <Cell {...props} now={0} />;
}

function CountingCell(props: { node: NodeRow; context: Context }): JSX.Element {
  return <Cell {...props} now={useNow()} />;
}

function Cell(props: { node: NodeRow; context: Context; now: number }): JSX.Element {
  const { node, context, now } = props;
  const [mark, kind] = nodeMark(node);
  const first = node.tenants[0];
  const text = [`${node.name}${node.zone ? ` (${node.zone})` : ''}, ${node.gpus} GPUs`, node.reason]
    .concat(node.tenants.map(tenant => tenantText(context, tenant, now)))
    .filter(Boolean)
    .join('\n');
  return (
    <button
      className={`hai-cell hai-cell-${kind}`}
      title={text}
      aria-label={text}
      disabled={!first}
      onClick={() => first && context.shell.openTask(first.task)}
    >
      {mark}
    </button>
  );
}

function tenantText(context: Context, tenant: Tenant, now: number): string {
  const silent = tenant.silent ? silenceText(context.translate, { count: 1, rank: 0, of: 1, since: tenant.silent }, now) : '';
  return [`#${tenant.task} ${tenant.name}`, tenant.user, silent].filter(Boolean).join(', ');
}

function nodeMark(node: NodeRow): [string, string] {
  if (!node.ready) {
    return ['✗', 'bad'];
  }
  if (node.cordoned) {
    return ['╱', 'off'];
  }
  if (hasSilentAgent(node)) {
    return [SILENT.glyph, 'silent'];
  }
  return node.tenants.length ? ['■', 'busy'] : ['□', 'free'];
}
