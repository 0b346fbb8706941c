/** Chinese. */
const zh: Record<string, string> = {
  Tasks: '任务',
  Cluster: '集群'
};
export default zh;
