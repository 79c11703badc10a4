#include "graph/partition.h"

namespace weft {

Partition Partition::Clone() const {
  Partition copy;
  copy.rank = rank;
  copy.mesh = mesh;
  copy.training = training;
  copy.strict = strict;
  copy.tf32 = tf32;
  copy.uses_cudnn = uses_cudnn;
  copy.fuses_nodes = fuses_nodes;
  copy.commits = commits;
  copy.threads = threads;
  copy.host_ops = host_ops;
  copy.global_batch = global_batch;
  copy.total_micro_batches = total_micro_batches;
  copy.variables = variables;
  copy.inputs = inputs;
  copy.begin = begin.Clone();
  for (const Graph& graph : micro) copy.micro.push_back(graph.Clone());
  copy.end = end.Clone();
  copy.micro_batches = micro_batches;
  copy.accumulations = accumulations;
  copy.actions = actions;
  copy.channels = channels;
  copy.guard = guard;
  copy.reports = reports;
  return copy;
}

}  // namespace weft
