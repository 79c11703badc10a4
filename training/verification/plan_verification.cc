#include "training/verification/plan_verification.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/variables/variable_store.h"
#include "ops/node_runner.h"
#include "placement/partition/partitioner.h"
#include "placement/pipeline/recomputation.h"
#include "platform/status_macros.h"
#include "training/verification/captured_step.h"

namespace weft {
namespace {

using Kind = ValueCapture::Kind;

constexpr double kNothing = 1e-6;  // what sums that cancel leave

// "grad/x/sum0-2" is a block of the sum "grad/x".
std::string SumName(const std::string& block) {
  const size_t at = block.rfind("/sum");
  if (at == std::string::npos) return block;
  const bool is_range = block.find_first_not_of("0123456789-", at + 4) == std::string::npos;
  return is_range && at + 4 < block.size() ? block.substr(0, at) : block;
}

// What one process made: whole values by name and micro-batch (-1 = once per step), and when.
class Expectation {
 public:
  Expectation(const PreparedJob& job, const CapturedStep& step) {
    for (const Variable& variable : job.graph.variables()) {
      if (variable.initial.valid()) values_[{variable.name, -1}] = variable.initial;
    }
    const CapturedStep::Rank& rank = step.ranks[0];
    for (const ValueCapture& capture : rank.captures) {
      const std::string name = capture.kind == Kind::kSum ? SumName(capture.node) : capture.value;
      position_.try_emplace(name, static_cast<int>(position_.size()));
      if (capture.kind == Kind::kSum) {
        terms_[name] = capture.value;
      } else {
        values_[{name, capture.first}] = rank.values.at(capture.report);
      }
    }
  }
  bool Knows(const std::string& name) const {
    return position_.contains(name) || values_.contains({name, -1});
  }
  int Position(const std::string& name) const {
    const auto it = position_.find(name);
    return it == position_.end() ? -1 : it->second;
  }
  // Null when there is none.
  const Tensor* Find(const std::string& name, int micro_batch) const {
    const auto it = values_.find({name, micro_batch});
    return it == values_.end() ? nullptr : &it->second;
  }
  // A sum over micro-batches [first, last) as doubles; invalid when its terms are not known.
  absl::StatusOr<Tensor> Sum(const std::string& name, int first, int last) const {
    const auto term = terms_.find(name);
    std::vector<double> sum;
    Shape shape;
    for (int i = first; term != terms_.end() && i < last; ++i) {
      const Tensor* part = Find(term->second, i);
      if (part == nullptr) return Tensor();
      WEFT_ASSIGN_OR_RETURN(const std::vector<double> more, ToDoubles(*part));
      shape = part->shape();
      sum.resize(more.size(), 0);
      for (size_t k = 0; k < more.size(); ++k) sum[k] += more[k];
    }
    return sum.empty() ? Tensor() : Tensor::Of<double>(shape, sum);
  }
  bool IsSum(const std::string& name) const { return terms_.contains(name); }

 private:
  std::map<std::pair<std::string, int>, Tensor> values_;
  std::map<std::string, int> position_;
  std::map<std::string, std::string> terms_;  // sum -> what it sums
};

// A rank's value read as part of a logical one.
struct Part {
  const ValueCapture* capture = nullptr;
  int rank = 0;
  std::string logical;
  AxisSharding sharding;
  bool converted = false;
  int position = -1;  // in the single process
};

class Verifier {
 public:
  Verifier(const PreparedJob& planned, const CapturedStep& actual, const Expectation& expected,
           StepShardings shardings, const PlanVerificationOptions& options)
      : mesh_(planned.plan.mesh),
        cuts_whole_batch_(planned.plan.whole_batch && planned.plan.micro_batches > 1),
        program_(planned.programs[0]),
        actual_(actual),
        expected_(expected),
        shardings_(std::move(shardings)),
        options_(options) {}

  absl::StatusOr<VerifyReport> Run() {
    for (int rank = 0; rank < mesh_.size(); ++rank) {
      std::set<std::string> names;
      for (const ValueCapture& capture : actual_.ranks[rank].captures) names.insert(capture.value);
      const std::vector<ValueCapture>& captures = actual_.ranks[rank].captures;
      for (size_t i = 0; i < captures.size(); ++i) {
        Part part = ReadPart(captures[i], rank, names);
        part.position = PositionOf(part, captures, i);
        WEFT_RETURN_IF_ERROR(Visit(part));
      }
    }
    return std::move(report_);
  }
  void CompareVariables(const std::map<std::string, Tensor>& expected);

 private:
  // Position in the single process; there a converted variable, what ranks sum of their own, what
  // is made, received, converted.
  using Place = std::tuple<int, int, int, int>;

  Part ReadPart(const ValueCapture& capture, int rank, const std::set<std::string>& names) const;
  int PositionOf(const Part& part, const std::vector<ValueCapture>& captures, size_t index) const;
  AxisSharding ShardingOf(const std::string& name, const ValueCapture& capture) const;
  absl::Status Visit(const Part& part);
  absl::StatusOr<Tensor> Whole(const Part& part) const;
  absl::StatusOr<Tensor> Held(const Part& part) const;
  absl::StatusOr<Tensor> RowsLike(const Tensor& held, const Tensor& whole, int rank) const;
  void Compare(const Part& part, const Tensor& held, const Tensor& wanted, const Shape& whole);
  void Note(const Place& place, ValueDifference difference);
  void LeaveOut() { ++report_.left_out; }

  const Mesh mesh_;
  // One process has one micro-batch, the replicas parts of it: values of these are not compared.
  const bool cuts_whole_batch_;
  const JobProgram& program_;
  const CapturedStep& actual_;
  const Expectation& expected_;
  const StepShardings shardings_;
  const PlanVerificationOptions& options_;
  VerifyReport report_;
  std::optional<Place> first_;
};

AxisSharding Verifier::ShardingOf(const std::string& name, const ValueCapture& capture) const {
  const auto size = shardings_.find(capture.kind == Kind::kMicro ? capture.samples : 0);
  if (size == shardings_.end()) return {};
  const auto value = size->second.find(name);
  return value == size->second.end() ? AxisSharding() : value->second;
}

// Partitioning names values after the logical ones: "x", converted "x@R" or "x@S(1)", and "x@shard"
// where a conversion took the name; "recompute/x" where it is made a second time; "w@gathered" is a
// variable of which each replica stores its rows.
Part Verifier::ReadPart(const ValueCapture& capture, int rank,
                        const std::set<std::string>& names) const {
  Part part{&capture,
            rank,
            capture.kind == Kind::kSum ? SumName(capture.node) : capture.value,
            {},
            false};
  part.sharding = ShardingOf(part.logical, capture);
  if (!expected_.Knows(part.logical) && part.logical.starts_with(kRecomputedPrefix)) {
    part.logical = part.logical.substr(std::string(kRecomputedPrefix).size());
    part.sharding = ShardingOf(part.logical, capture);
    if (expected_.Knows(part.logical)) return part;
  }
  if (expected_.Knows(part.logical)) {
    if (names.contains(part.logical + "@shard")) part.sharding = {};
    return part;
  }
  const size_t at = part.logical.rfind('@');
  if (at == std::string::npos) return part;
  const std::string suffix = part.logical.substr(at + 1);
  const std::string base = part.logical.substr(0, at);
  const auto parsed = AxisSharding::Parse(suffix);
  if (suffix == "shard" || suffix == "gathered") {
    part.logical = base;
    part.sharding = ShardingOf(base, capture);
  } else if (parsed.ok()) {
    part.logical = base;
    part.sharding = *parsed;
    part.converted = true;
  }
  return part;
}

// A variable is made nowhere; its conversion stands in front of its first reader.
int Verifier::PositionOf(const Part& part, const std::vector<ValueCapture>& captures,
                         size_t index) const {
  int position = expected_.Position(part.logical);
  for (size_t i = index + 1; position < 0 && i < captures.size(); ++i) {
    const ValueCapture& capture = captures[i];
    if (capture.kind != part.capture->kind || capture.first != part.capture->first) continue;
    position = expected_.Position(capture.value.substr(0, capture.value.rfind('@')));
  }
  return position;
}

absl::StatusOr<Tensor> Verifier::Whole(const Part& part) const {
  const ValueCapture& capture = *part.capture;
  if (capture.kind == Kind::kSum) return expected_.Sum(part.logical, capture.first, capture.last);
  if (capture.kind != Kind::kMicro && expected_.IsSum(part.logical)) {
    const int total = cuts_whole_batch_ ? 1 : program_.partitions[0].total_micro_batches;
    return expected_.Sum(part.logical, 0, total);
  }
  const Tensor* value = expected_.Find(part.logical, capture.first);
  // Variables are the same in every micro-batch.
  if (value == nullptr) value = expected_.Find(part.logical, -1);
  return value == nullptr ? Tensor() : *value;
}

// What the rank holds; where that is Partial, the sum over its tensor group.
absl::StatusOr<Tensor> Verifier::Held(const Part& part) const {
  const Tensor& own = actual_.ranks[part.rank].values.at(part.capture->report);
  if (!part.sharding.is_partial()) return own;
  std::vector<double> sum(static_cast<size_t>(own.num_elements()), 0);
  for (const RankId rank : mesh_.Group(RankId(part.rank), MeshAxis::kTensor)) {
    const auto& values = actual_.ranks[rank.value].values;
    const auto other = values.find(part.capture->report);
    if (other == values.end()) return Tensor();
    WEFT_ASSIGN_OR_RETURN(const std::vector<double> more, ToDoubles(other->second));
    if (more.size() != sum.size()) return Tensor();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += more[i];
  }
  return Tensor::Of<double>(own.shape(), sum);
}

absl::Status Verifier::Visit(const Part& part) {
  const Kind kind = part.capture->kind;
  const bool is_cut = cuts_whole_batch_ && (kind == Kind::kMicro || kind == Kind::kSum);
  if (is_cut || !expected_.Knows(part.logical)) return LeaveOut(), absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(Tensor whole, Whole(part));
  WEFT_ASSIGN_OR_RETURN(const Tensor held, Held(part));
  if (!whole.valid() || !held.valid()) return LeaveOut(), absl::OkStatus();
  const Shape shape = whole.shape();
  if (part.sharding.is_split() && part.sharding.Validate(shape).ok()) {
    VariableShard shard;
    shard.dtype = whole.dtype();
    shard.global_shape = shape;
    shard.tensor_sharding = part.sharding;
    shard.tensor_shards = mesh_.tensor;
    shard.tensor_index = mesh_.CoordinateOf(RankId(part.rank)).tensor;
    shard.local_shape = part.sharding.LocalShape(shape, mesh_.tensor, shard.tensor_index);
    WEFT_ASSIGN_OR_RETURN(whole, SliceShard(whole, shard));
  }
  WEFT_ASSIGN_OR_RETURN(whole, RowsLike(held, whole, part.rank));
  if (!(held.shape() == whole.shape()) && part.capture->kind != Kind::kMicro) {
    return LeaveOut(), absl::OkStatus();
  }
  Compare(part, held, whole, shape);
  return absl::OkStatus();
}

// The replica's rows of `whole` where `held` has their shape (ZeRO), else all.
absl::StatusOr<Tensor> Verifier::RowsLike(const Tensor& held, const Tensor& whole, int rank) const {
  if (held.shape() == whole.shape() || whole.shape().rank() == 0) return whole;
  VariableShard shard;
  shard.dtype = whole.dtype();
  shard.global_shape = whole.shape();
  shard.data_shards = mesh_.data;
  shard.data_index = mesh_.CoordinateOf(RankId(rank)).data;
  shard.local_shape =
      AxisSharding::Split(0).LocalShape(whole.shape(), shard.data_shards, shard.data_index);
  return shard.local_shape == held.shape() ? SliceShard(whole, shard) : whole;
}

struct Gap {
  double largest = 0;
  double allowed = 0;
};

Gap GapOf(const Tensor& held, const Tensor& wanted, double tolerance) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto a = ToDoubles(held);
  const auto b = ToDoubles(wanted);
  if (!a.ok() || !b.ok() || !(held.shape() == wanted.shape())) return {kInfinity, 0};
  Gap gap;
  double magnitude = 0;
  for (size_t i = 0; i < a->size(); ++i) {
    const double x = (*a)[i];
    const double y = (*b)[i];
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    const double distance = std::abs(x - y);
    gap.largest = std::isnan(distance) ? kInfinity : std::max(gap.largest, distance);
  }
  for (const double y : *b)
    magnitude = std::isfinite(y) ? std::max(magnitude, std::abs(y)) : magnitude;
  gap.allowed = tolerance * magnitude + kNothing;
  return gap;
}

void Verifier::Note(const Place& place, ValueDifference difference) {
  ++report_.different;
  if (first_.has_value() && *first_ <= place) return;
  first_ = place;
  report_.first = std::move(difference);
}

void Verifier::Compare(const Part& part, const Tensor& held, const Tensor& wanted,
                       const Shape& whole) {
  ++report_.compared;
  const Gap gap = GapOf(held, wanted, options_.tolerance);
  report_.worst = std::max(report_.worst, gap.largest / gap.allowed);
  if (gap.largest <= gap.allowed) return;
  const ValueCapture& capture = *part.capture;
  ValueDifference difference;
  difference.node = capture.kind == Kind::kSum ? part.logical : capture.node;
  difference.op = capture.op;
  difference.value = part.logical;
  difference.rank = part.rank;
  difference.micro_batch = capture.kind == Kind::kMicro ? capture.first : -1;
  difference.shape = absl::StrCat(held.shape().ToString(), " of ", whole.ToString());
  difference.largest = gap.largest;
  difference.allowed = gap.allowed;
  // A sum that a rank makes of its own micro-batches comes before the one over ranks.
  int step = part.converted ? 3 : capture.received ? 2 : capture.kind == Kind::kSum ? 0 : 1;
  if (expected_.Position(part.logical) < 0) step = -1;
  Note({part.position, step, capture.first, part.rank}, std::move(difference));
}

void Verifier::CompareVariables(const std::map<std::string, Tensor>& expected) {
  for (const auto& [name, value] : expected) {
    const auto actual = actual_.variables.find(name);
    if (actual == actual_.variables.end()) {
      LeaveOut();
      continue;
    }
    ++report_.compared;
    const Gap gap = GapOf(actual->second, value, options_.tolerance);
    report_.worst = std::max(report_.worst, gap.largest / gap.allowed);
    if (gap.largest <= gap.allowed) continue;
    const std::string shape = value.shape().ToString();
    Note({std::numeric_limits<int>::max(), 0, 0, 0},
         {name, "Variable", name, 0, -1, absl::StrCat(shape, " of ", shape), gap.largest,
          gap.allowed});
  }
}

}  // namespace

absl::StatusOr<PreparedJob> PrepareSingle(const Graph& model, const TrainingSpec& training,
                                          const Plan& plan, std::shared_ptr<const DataSet> data) {
  JobSpec spec;
  spec.cluster = ClusterSpec::Local(1, plan.threads_per_worker);
  // Replicas that compute with the whole batch do what one process does in one micro-batch.
  spec.plan.micro_batches = plan.whole_batch ? 1 : plan.micro_batches;
  spec.plan.whole_batch = plan.whole_batch;
  spec.batch_policy.allows_cuts = true;
  spec.plan.strict = plan.strict;
  spec.plan.threads_per_worker = plan.threads_per_worker;
  return PrepareTraining(model, training, spec, std::move(data));
}

absl::StatusOr<VerifyReport> VerifyPlan(FileSystem& files, PreparedJob planned, PreparedJob single,
                                        const PlanVerificationOptions& options) {
  WEFT_ASSIGN_OR_RETURN(
      StepShardings shardings,
      ShardingsOfStep(planned.graph, planned.plan, {true, planned.programs[0].shape.batch},
                      CpuNodeEvaluator()));
  WEFT_ASSIGN_OR_RETURN(const CapturedStep alone, RunCapturedStep(files, single));
  WEFT_ASSIGN_OR_RETURN(const CapturedStep spread, RunCapturedStep(files, planned));
  const Expectation expected(single, alone);
  Verifier verifier(planned, spread, expected, std::move(shardings), options);
  verifier.CompareVariables(alone.variables);
  return verifier.Run();
}

}  // namespace weft
