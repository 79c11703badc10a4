#include "placement/search/stage_traffic.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "placement/rules/stage_transfers.h"
#include "placement/rules/step_order.h"

namespace weft {
namespace {

// By unit.
std::vector<int> StageOfUnits(const std::vector<int>& begins) {
  std::vector<int> stages(begins.back());
  for (size_t stage = 0; stage + 1 < begins.size(); ++stage) {
    std::fill(stages.begin() + begins[stage], stages.begin() + begins[stage + 1],
              static_cast<int>(stage));
  }
  return stages;
}

// Of a value's readers, by place.
std::map<int, StageRead> FirstReads(const PlannedTransfer& value, const std::vector<int>& stage_of,
                                    int places) {
  const int from = stage_of[value.unit];
  std::map<int, StageRead> reads;
  for (const int reader : value.readers) {
    const int to = stage_of[reader];
    if (PlaceOfStage(from, places) == PlaceOfStage(to, places)) continue;
    std::optional<Phase> phase = Phase::kBegin;
    if (value.made != Phase::kBegin) {
      phase = PhaseOfTransfer(value.made == Phase::kForward, from, to);
    }
    if (!phase.has_value()) continue;  // the partitioner refuses such a plan
    const StageRead read = {*phase, to};
    const auto [known, is_new] = reads.try_emplace(PlaceOfStage(to, places), read);
    if (!is_new) known->second = FirstRead(known->second, read);
  }
  return reads;
}

}  // namespace

DataSplit SplitOverData(const PlanningGraph& graph, const Plan& plan, const RowUpdates& updates) {
  DataSplit split;
  const DataAxis axis = DataAxisOf(plan);
  if (!SplitsVariables(axis)) return split;
  const Graph& step = *graph.graph;
  DataShardings data = FindDataShardings(step, plan, graph.shardings.variables, updates);
  for (const Variable& variable : step.variables()) {
    split.variables.push_back(data.parameters.contains(variable.name));
  }
  if (!ScattersSums(axis)) return split;
  split.axis = axis;
  const RowReaders readers(step, graph.shardings);
  ExtendToInputs(readers, data);
  for (const PlannedSum& sum : graph.sums) {
    const bool are_rows_enough = !sum.is_first && readers.ReadRowsOnly(sum.value, data);
    split.sums.push_back(
        IsScattered(axis, {sum.is_first, are_rows_enough, /*is_read_elsewhere=*/false}));
  }
  return split;
}

CollectiveTotal TotalOf(const PlaceSums& sums, bool is_scattered) {
  CollectiveTotal all;
  for (const std::vector<SumGroup>* groups : {&sums.groups.first, &sums.groups.later}) {
    for (const SumGroup& group : *groups) {
      if (group.is_scattered != is_scattered) continue;
      ++all.collectives;
      all.bytes += BytesOf(group, sums.sums);
    }
  }
  return all;
}

std::vector<PlaceSums> SumsOfPlaces(const PlanningGraph& graph, const StagesOfUnits& stages,
                                    const DataSplit& split, int64_t bucket_bytes) {
  const std::vector<int> stage_of = StageOfUnits(stages.begins);
  std::vector<std::vector<RankSum>> first(stages.places);
  std::vector<std::vector<std::pair<SumTurn, RankSum>>> later(stages.places);
  for (size_t i = 0; i < graph.sums.size(); ++i) {
    const PlannedSum& sum = graph.sums[i];
    const int stage = stage_of[sum.unit];
    const int place = PlaceOfStage(stage, stages.places);
    const auto is_here = [&](int reader) {
      return PlaceOfStage(stage_of[reader], stages.places) == place;
    };
    const bool are_rows_enough = !split.sums.empty() && split.sums[i];
    const bool is_scattered =
        are_rows_enough &&
        IsScattered(split.axis, {sum.is_first, are_rows_enough,
                                 !std::all_of(sum.readers.begin(), sum.readers.end(), is_here)});
    const RankSum own = {sum.bytes, sum.dtype, is_scattered};
    if (sum.is_first) {
      first[place].push_back(own);
    } else {
      // PlanningGraph::sums has them in the order of the nodes that make their terms.
      later[place].push_back({SumTurn{stage, static_cast<int>(i), NodeId(0)}, own});
    }
  }
  std::vector<PlaceSums> result(stages.places);
  for (int place = 0; place < stages.places; ++place) {
    std::sort(later[place].begin(), later[place].end(),
              [](const auto& a, const auto& b) { return IsSummedBefore(a.first, b.first); });
    std::vector<RankSum> rest;
    for (const auto& [turn, sum] : later[place]) rest.push_back(sum);
    PlaceSums& one = result[place];
    one.groups = GroupSums(first[place], rest, bucket_bytes);
    one.sums = std::move(first[place]);
    one.sums.insert(one.sums.end(), rest.begin(), rest.end());
  }
  return result;
}

std::vector<StageMessage> MessagesOfStages(const PlanningGraph& graph,
                                           const StagesOfUnits& stages) {
  std::vector<StageMessage> messages;
  if (stages.places == 1) return messages;
  const std::vector<int> stage_of = StageOfUnits(stages.begins);
  std::map<std::tuple<Phase, int, int>, int64_t> bytes;
  for (const PlannedTransfer& value : graph.transfers) {
    if (stage_of[value.unit] == stage_of[value.readers.front()] &&
        stage_of[value.unit] == stage_of[value.readers.back()]) {
      continue;
    }
    for (const auto& [place, read] : FirstReads(value, stage_of, stages.places)) {
      bytes[{read.phase, stage_of[value.unit], read.stage}] += value.bytes;
    }
  }
  for (const auto& [key, sum] : bytes) {
    messages.push_back({std::get<1>(key), std::get<2>(key), std::get<0>(key), sum});
  }
  return messages;
}

}  // namespace weft
