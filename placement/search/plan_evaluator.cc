#include "placement/search/plan_evaluator.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/node_description.h"
#include "placement/graph_views/graph_for_samples.h"
#include "placement/rules/stage_transfers.h"
#include "placement/rules/sum_groups.h"
#include "placement/search/coarse_model.h"
#include "placement/search/tensor_split.h"
#include "placement/simulation/plan_prediction.h"
#include "placement/simulation/simulator.h"
#include "platform/status_macros.h"

namespace weft {

absl::StatusOr<std::unique_ptr<PlanEvaluator>> PlanEvaluator::Create(const Graph& graph,
                                                                     const CostModel& cost,
                                                                     const SearchOptions& options,
                                                                     NodeEvaluator& evaluator) {
  std::unique_ptr<PlanEvaluator> created(new PlanEvaluator(graph, cost, options, evaluator));
  WEFT_RETURN_IF_ERROR(created->Prepare());
  return created;
}

absl::Status PlanEvaluator::Prepare() {
  for (size_t worker = 0; worker < static_cast<size_t>(cost_.num_workers()); ++worker) {
    const int said = worker < options_.worker_threads.size() ? options_.worker_threads[worker] : 0;
    const int own = said > 0 ? said : options_.given.threads_per_worker;
    threads_.push_back(options_.given.strict ? 1 : own);
  }
  const int64_t batch = std::max<int64_t>(1, options_.global_batch);
  WEFT_ASSIGN_OR_RETURN(Graph* const sized, Sized(batch));
  WEFT_RETURN_IF_ERROR(MakeUnits(*sized));
  PlanningOptions planning;
  planning.threads = threads_;
  planning.node_costs = options_.node_costs;
  auto whole = std::make_unique<PlanningGraph>();
  WEFT_ASSIGN_OR_RETURN(*whole, MakePlanningGraph(*sized, batch, layout_, cost_, planning));
  for (size_t device = 0; device < cost_.profile().devices.size(); ++device) {
    device_seconds_.push_back(std::max(1e-12, whole->Seconds(static_cast<int>(device))));
  }
  for (const PlanningUnit& unit : whole->units) {
    whole_.kept += unit.kept_bytes;
    for (const PlannedVariable& variable : unit.variables) {
      whole_.variables += variable.parameter_bytes;
      whole_.state += variable.state_bytes;
      if (variable.trainable) whole_.gradients += variable.parameter_bytes;
    }
  }
  graphs_[{batch, 1, cost_.MeasuredInFlight(1), {}}] = std::move(whole);
  return absl::OkStatus();
}

// Units are cut by what the whole batch costs, in `sized`, and nodes placed in the logical graph,
// as the partitioner does it; graphs for other samples follow that.
absl::Status PlanEvaluator::MakeUnits(Graph& sized) {
  WEFT_ASSIGN_OR_RETURN(layout_, CutIntoUnits(sized, cost_, options_.max_units));
  WEFT_RETURN_IF_ERROR(PlaceInUnits(graph_, layout_));
  for (const NodeId id : sized.node_ids()) {
    const std::optional<NodeId> logical = graph_.FindNode(sized.node(id).name);
    if (!logical.has_value()) {
      return absl::InternalError(absl::StrCat(DescribeNode(sized.node(id)), " for ",
                                              options_.global_batch,
                                              " samples is no node of the training graph"));
    }
    sized.node(id).stage = graph_.node(*logical).stage;
  }
  return absl::OkStatus();
}

absl::StatusOr<Graph*> PlanEvaluator::Sized(int64_t samples) {
  std::unique_ptr<Graph>& known = sized_[samples];
  if (known == nullptr) {
    WEFT_ASSIGN_OR_RETURN(Graph sized, GraphForSamples(graph_, samples, evaluator_));
    known = std::make_unique<Graph>(std::move(sized));
  }
  return known.get();
}

int64_t PlanEvaluator::SamplesOf(const PlanChoice& choice) const {
  const int64_t batch = std::max<int64_t>(1, options_.global_batch);
  return std::max<int64_t>(1, (batch + choice.micro_batches - 1) / choice.micro_batches);
}

absl::StatusOr<std::map<std::string, AxisSharding>> PlanEvaluator::TensorShardings(
    const Graph& sized, const std::vector<int>& group) const {
  TensorSplitOptions split;
  split.workers = group;
  split.threads = threads_[group.front()];
  split.given = options_.given.tensor_shardings;
  split.uncounted = &graph_;
  return ChooseTensorShardings(sized, cost_, split);
}

// The middle of the first and the last place's counts for all.
int PlanEvaluator::MeasuredInFlight(const PlanChoice& choice) const {
  const double first = MicroBatchesInFlight(choice, 0);
  const double last = MicroBatchesInFlight(choice, choice.mesh.pipeline - 1);
  return cost_.MeasuredInFlight(static_cast<int>(std::ceil((first + last) / 2)));
}

absl::StatusOr<const PlanningGraph*> PlanEvaluator::GraphOf(const PlanChoice& choice) {
  const int64_t samples = SamplesOf(choice);
  std::vector<int> group;
  std::vector<int> devices;
  if (choice.mesh.tensor > 1) {
    for (int shard = 0; shard < choice.mesh.tensor; ++shard) {
      group.push_back(choice.WorkerAt(0, shard, 0));
      devices.push_back(cost_.profile().device_of[group.back()]);
    }
  }
  const int in_flight = MeasuredInFlight(choice);
  std::unique_ptr<PlanningGraph>& known =
      graphs_[{samples, choice.mesh.tensor, in_flight, devices}];
  if (known != nullptr) return known.get();
  WEFT_ASSIGN_OR_RETURN(Graph* const sized, Sized(samples));
  PlanningOptions planning;
  planning.shards = choice.mesh.tensor;
  planning.threads = threads_;
  planning.in_flight = in_flight;
  planning.node_costs = options_.node_costs;
  if (planning.shards > 1) {
    WEFT_ASSIGN_OR_RETURN(planning.tensor_shardings, TensorShardings(*sized, group));
  }
  WEFT_ASSIGN_OR_RETURN(PlanningGraph made,
                        MakePlanningGraph(*sized, samples, layout_, cost_, planning));
  known = std::make_unique<PlanningGraph>(std::move(made));
  return known.get();
}

const DataSplit& PlanEvaluator::SplitOf(const PlanChoice& choice, const PlanningGraph& graph) {
  static const DataSplit* const kNothing = new DataSplit();
  if (!SplitsVariables({choice.mesh.data, choice.zero, options_.given.reduction})) return *kNothing;
  // With 3 the same variables and sums are split as with 2.
  const int zero = std::min(choice.zero, 2);
  const auto [known, is_new] = splits_.try_emplace({&graph, choice.mesh.data, zero}, DataSplit());
  if (!is_new) return known->second;
  Plan plan = options_.given;
  plan.mesh = choice.mesh;
  plan.zero = zero;
  if (!row_updates_.has_value()) row_updates_ = FindRowUpdates(*graph.graph);
  known->second = SplitOverData(graph, plan, *row_updates_);
  return known->second;
}

Plan PlanEvaluator::PlanOf(const EvaluatedChoice& one) const {
  Plan plan = options_.given;
  plan.mesh = one.choice.mesh;
  plan.workers = one.choice.workers;
  plan.micro_batches = one.choice.micro_batches;
  plan.schedule = one.choice.num_stages() > 1 ? one.choice.schedule : "gpipe";
  plan.chunks = one.choice.chunks;
  plan.zero = one.choice.zero;
  plan.shares = one.choice.shares;
  plan.recompute_segments = one.choice.recompute_segments;
  plan.tensor_shardings = one.graph->tensor_shardings;
  plan.stages.clear();
  for (int stage = 0; stage < plan.num_stages() && plan.num_stages() > 1; ++stage) {
    for (int unit = one.begins[stage]; unit < one.begins[stage + 1]; ++unit) {
      for (const std::string& node : layout_.nodes[unit]) plan.stages[node] = stage;
    }
  }
  return plan;
}

double PlanEvaluator::LowerBound(const PlanChoice& choice) const {
  double speed = 0;  // whole batches per second
  for (const int worker : choice.workers) speed += 1 / WorkerSeconds(worker);
  const double own = std::max(1, choice.MaxMicroBatches());
  return cost_.corrections().step * MinRounds(choice) / own / speed;
}

PlanEvaluator::GraphSeconds PlanEvaluator::SecondsOf(const PlanningGraph& graph,
                                                     const PlanChoice& choice) {
  std::vector<int> group;
  for (int shard = 0; shard < choice.mesh.tensor; ++shard) {
    group.push_back(choice.WorkerAt(0, shard, 0));
  }
  const auto [known, is_new] = graph_seconds_.try_emplace({&graph, group});
  if (!is_new) return known->second;
  GraphSeconds& fastest = known->second;
  for (size_t device = 0; device < device_seconds_.size(); ++device) {
    GraphSeconds seconds;
    for (const PlanningUnit& unit : graph.units) {
      seconds.forward += unit.forward[device];
      seconds.once += unit.backward[device] + unit.weight_gradient[device];
      seconds.accumulation += unit.accumulation[device];
    }
    seconds.once += seconds.forward;
    if (device > 0 && seconds.once >= fastest.once) continue;
    fastest = seconds;
  }
  for (const PlanningUnit& unit : graph.units) {
    for (const auto& [use, count] : unit.forward_collectives) {
      const double seconds = count * collectives_.Seconds(use, group);
      fastest.once += seconds;
      fastest.forward += seconds;
    }
    for (const auto& [use, count] : unit.backward_collectives) {
      fastest.once += count * collectives_.Seconds(use, group);
    }
  }
  return fastest;
}

absl::StatusOr<double> PlanEvaluator::CloseBound(const PlanChoice& choice) {
  WEFT_ASSIGN_OR_RETURN(const PlanningGraph* const graph, GraphOf(choice));
  const GraphSeconds seconds = SecondsOf(*graph, choice);
  const double places = choice.mesh.pipeline;
  const double own = std::max(1, choice.MaxMicroBatches());
  const int segments = choice.recompute_segments;
  // The last segment may not run again; while a pipeline fills nothing does.
  const double again = segments > 0 ? seconds.forward * (segments - 1) / segments : 0;
  const double busy = (own * (seconds.once + again) + (own - 1) * seconds.accumulation) / places;
  const double idle = (MinRounds(choice) - own) * seconds.once / places;
  return cost_.corrections().step * (busy + idle);
}

bool PlanEvaluator::CannotFit(const PlanChoice& choice) const {
  // Micro-batches in flight (negated, so that most come first) and capacity of each place. Bytes
  // that are held once, such as weights, are assigned to the first places: this leaves the most
  // room for activations, which are held once per micro-batch in flight.
  std::vector<std::pair<double, double>> places;
  for (int place = 0; place < choice.mesh.pipeline; ++place) {
    const int64_t limit = LimitOf(choice, place);
    if (limit == 0) return false;
    // With recomputation, the activations of one segment at a time are the minimum.
    const double times = choice.recompute_segments > 0 ? 1.0 / choice.recompute_segments
                                                       : MicroBatchesInFlight(choice, place);
    places.push_back({-times, static_cast<double>(limit - options_.process_bytes)});
  }
  std::sort(places.begin(), places.end());
  const int replicas = choice.zero > 0 ? choice.mesh.data : 1;
  double whole = static_cast<double>(whole_.variables + whole_.gradients) +
                 static_cast<double>(whole_.state) / replicas;
  whole /= choice.mesh.tensor;
  double kept = 0;
  for (const auto& [times, room] : places) {
    const double used = std::min(whole, room);
    whole -= used;
    kept += (room - used) / -times;
  }
  const double needed =
      static_cast<double>(whole_.kept) / choice.micro_batches / choice.mesh.tensor;
  // Some bytes less for rounding.
  return whole > 1 || kept < 0.999 * needed;
}

int64_t PlanEvaluator::LimitOf(const PlanChoice& choice, int place) const {
  int64_t min_limit = 0;
  for (int replica = 0; replica < choice.mesh.data; ++replica) {
    for (int shard = 0; shard < choice.mesh.tensor; ++shard) {
      const size_t worker = static_cast<size_t>(choice.WorkerAt(replica, shard, place));
      const int64_t limit =
          worker < options_.memory_limits.size() ? options_.memory_limits[worker] : 0;
      if (limit > 0) min_limit = min_limit == 0 ? limit : std::min(min_limit, limit);
    }
  }
  return min_limit;
}

// Per byte, for cutting stages: of gradients that the replicas of a place sum, in full buckets
// beside the backward pass; with ZeRO parameter by parameter. The coarse model then has the real
// buckets.
void PlanEvaluator::SetDataAxis(const PlanChoice& choice, const StageCosts& stage_costs, int place,
                                StagePlace& one) {
  const int64_t all = stage_costs.GradientBytes(0, stage_costs.units());
  if (choice.mesh.data == 1 || all == 0) return;
  std::vector<int> group;
  for (int replica = 0; replica < choice.mesh.data; ++replica) {
    group.push_back(choice.WorkerAt(replica, 0, place));
  }
  const auto per_byte = [&](CollectiveKind kind, int64_t bytes) {
    return collectives_.Seconds({kind, bytes}, group) / static_cast<double>(bytes);
  };
  int64_t scattered = 0;
  int64_t scatters = 0;
  const std::vector<PlannedSum>& sums = stage_costs.graph().sums;
  for (size_t i = 0; i < stage_costs.split().sums.size(); ++i) {
    if (!stage_costs.split().sums[i]) continue;
    scattered += sums[i].bytes;
    ++scatters;
  }
  const auto share = [all](int64_t bytes) {
    return static_cast<double>(bytes) / static_cast<double>(all);
  };
  if (const int64_t summed = all - scattered; summed > 0) {
    const int64_t bucket = std::max<int64_t>(1, options_.given.bucket_bytes);
    one.sum_seconds_per_byte =
        per_byte(CollectiveKind::kAllReduce, std::min(summed, bucket)) * share(summed);
  }
  if (scattered > 0) {
    one.exposed_seconds_per_byte +=
        per_byte(CollectiveKind::kGatherOrScatter, std::max<int64_t>(1, scattered / scatters)) *
        share(scattered);
  }
  const int64_t split = stage_costs.SplitBytes(0, stage_costs.units());
  if (choice.zero >= 1 && split > 0) {
    const int64_t parameters =
        std::max<int64_t>(1, stage_costs.SplitParameters(0, stage_costs.units()));
    one.exposed_seconds_per_byte +=
        per_byte(CollectiveKind::kGatherOrScatter, split / parameters) * share(split);
  }
}

std::vector<StagePlace> PlanEvaluator::Places(const PlanChoice& choice,
                                              const StageCosts& stage_costs) {
  std::vector<StagePlace> places;
  for (int stage = 0; stage < choice.num_stages(); ++stage) {
    const int place = PlaceOfStage(stage, choice.mesh.pipeline);
    StagePlace one;
    for (int replica = 0; replica < choice.mesh.data; ++replica) {
      for (int shard = 0; shard < choice.mesh.tensor; ++shard) {
        one.devices.push_back(cost_.profile().device_of[choice.WorkerAt(replica, shard, place)]);
      }
    }
    std::sort(one.devices.begin(), one.devices.end());
    one.devices.erase(std::unique(one.devices.begin(), one.devices.end()), one.devices.end());
    one.in_flight = MicroBatchesInFlight(choice, place);
    one.counts_once = choice.chunks == 1;
    const int64_t limit = LimitOf(choice, place);
    if (limit > 0) {
      one.memory_limit = std::max<int64_t>(1, (limit - options_.process_bytes) / choice.chunks);
    }
    if (choice.mesh.pipeline > 1) {
      const int before = (place + choice.mesh.pipeline - 1) % choice.mesh.pipeline;
      const LinkCost link = cost_.Link(choice.WorkerAt(0, 0, before), choice.WorkerAt(0, 0, place));
      if (link.bytes_per_second > 0) one.link_seconds_per_byte = 1 / link.bytes_per_second;
    }
    SetDataAxis(choice, stage_costs, place, one);
    places.push_back(std::move(one));
  }
  return places;
}

// The place that is nearest to its limit counts, or where there is none the one that needs most.
void PlanEvaluator::SumMemory(const StageCosts& stage_costs, EvaluatedChoice& result) const {
  double worst = -1;
  for (int place = 0; place < result.choice.mesh.pipeline; ++place) {
    int64_t bytes = options_.process_bytes;
    for (int stage = place; stage < result.choice.num_stages();
         stage += result.choice.mesh.pipeline) {
      bytes += stage_costs
                   .Memory(result.begins[stage], result.begins[stage + 1],
                           MicroBatchesInFlight(result.choice, place))
                   .total();
    }
    const int64_t limit = LimitOf(result.choice, place);
    const double fill = limit > 0 ? static_cast<double>(bytes) / static_cast<double>(limit)
                                  : static_cast<double>(bytes) * 1e-18;
    if (limit > 0 && bytes > limit) result.fits = false;
    if (fill <= worst) continue;
    worst = fill;
    result.memory_bytes = bytes;
    result.memory_limit = limit;
  }
}

// Where the best few are simulated from their partitions, coarse models run as many steps: a rank
// that has updated begins the next step while others still work.
absl::Status PlanEvaluator::Simulate(const StageCosts& stage_costs, EvaluatedChoice& result) {
  WEFT_ASSIGN_OR_RETURN(const StepModel model,
                        MakeCoarseModel(stage_costs, result.choice, result.begins, cost_,
                                        collectives_, options_.given.bucket_bytes));
  SimulationOptions simulated;
  if (IsSimulated(result.choice.mesh)) simulated.steps = kPredictedSteps;
  WEFT_ASSIGN_OR_RETURN(const Simulation simulation, SimulateStep(model, simulated));
  // What earlier runs say of any plan; of this very one when it is simulated exactly.
  const double factor = cost_.corrections().step;
  result.step_seconds = simulation.step_seconds * factor;
  const double ranks = std::max<double>(1, static_cast<double>(simulation.ranks.size()));
  for (const RankTime& time : simulation.ranks) {
    result.compute_seconds += time.compute * factor / ranks;
    result.communication_seconds += time.communication * factor / ranks;
    result.bubble_seconds += time.bubble * factor / ranks;
  }
  return absl::OkStatus();
}

absl::StatusOr<EvaluatedChoice> PlanEvaluator::Evaluate(const PlanChoice& choice, bool exhaustive) {
  ++evaluated_;
  EvaluatedChoice result;
  result.choice = choice;
  WEFT_ASSIGN_OR_RETURN(result.graph, GraphOf(choice));
  const StageCosts stage_costs(*result.graph, choice, collectives_, SplitOf(choice, *result.graph));
  std::vector<StagePlace> places = Places(choice, stage_costs);
  const auto cut_stages = exhaustive ? CutStagesExhaustively : CutStages;
  // As of the replica that has most; each chunk is a round of its own.
  const int rounds = std::max(1, choice.MaxMicroBatches()) * choice.chunks;
  StageCut cut = cut_stages(stage_costs, places, rounds);
  if (cut.begins.empty()) {
    result.fits = false;
    for (StagePlace& place : places) place.memory_limit = 0;
    cut = cut_stages(stage_costs, places, rounds);
  }
  if (cut.begins.empty()) {
    result.refusal = absl::StrCat("the forward pass has ", stage_costs.units(), " parts for ",
                                  choice.num_stages(), " stages");
    return result;
  }
  result.begins = cut.begins;
  SumMemory(stage_costs, result);
  WEFT_RETURN_IF_ERROR(Simulate(stage_costs, result));
  return result;
}

}  // namespace weft
