#include "placement/search/search_strategy.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Of the best choices of different meshes so many are refined, in so many rounds at most.
constexpr size_t kRefined = 4;
constexpr int kRounds = 16;
// Estimates of a step that are this far apart may change places when it is simulated exactly.
constexpr double kAboutAsGood = 1.2;

struct Bounded {
  PlanChoice choice;
  double bound = 0;
  size_t mesh = 0;
  int64_t number = 0;  // of equal bounds the first is looked at first
  bool is_close = false;
  friend bool operator<(const Bounded& a, const Bounded& b) {  // of a heap: the least on top
    return std::pair(a.bound, a.number) > std::pair(b.bound, b.number);
  }
};

// The best-first walk of "dp".
class BoundedWalk {
 public:
  BoundedWalk(const PlanSpace& space, PlanEvaluator& evaluator)
      : space_(space),
        evaluator_(evaluator),
        fits_(space.meshes().size()),
        is_known_(space.meshes().size()) {}

  absl::StatusOr<std::vector<EvaluatedChoice>> Run() {
    const auto is_whole = [](const PlanChoice& choice) { return choice.chunks == 1; };
    for (size_t mesh = 0; mesh < space_.meshes().size(); ++mesh) {
      std::vector<PlanChoice> choices = space_.FastVariants(space_.meshes()[mesh]);
      const auto chunked = std::stable_partition(choices.begin(), choices.end(), is_whole);
      interleaved_.emplace_back(chunked, choices.end());
      choices.erase(chunked, choices.end());
      Add(std::move(choices), mesh);
    }
    WEFT_RETURN_IF_ERROR(Walk());
    for (size_t mesh = 0; mesh < space_.meshes().size(); ++mesh) {
      std::erase_if(interleaved_[mesh], [&](const PlanChoice& one) { return !IsPromising(one); });
      Add(std::move(interleaved_[mesh]), mesh);
    }
    WEFT_RETURN_IF_ERROR(Walk());
    for (size_t mesh = 0; mesh < space_.meshes().size(); ++mesh) {
      if (!fits_[mesh]) Add(space_.SmallVariants(space_.meshes()[mesh]), mesh);
    }
    WEFT_RETURN_IF_ERROR(Walk());
    for (const EvaluatedChoice& start : BestOfMeshes()) WEFT_RETURN_IF_ERROR(Refine(start));
    return std::move(done_);
  }

 private:
  void Add(std::vector<PlanChoice> choices, size_t mesh) {
    for (PlanChoice& choice : choices) {
      const double bound = evaluator_.LowerBound(choice);
      heap_.push({std::move(choice), bound, mesh, ++number_});
    }
  }

  bool IsFull() const { return evaluator_.evaluated() >= evaluator_.options().max_evaluations; }

  absl::StatusOr<const EvaluatedChoice*> Evaluate(const PlanChoice& choice) {
    WEFT_ASSIGN_OR_RETURN(EvaluatedChoice evaluated, evaluator_.Evaluate(choice));
    if (IsPlan(evaluated)) {
      if (best_ == 0 || evaluated.step_seconds < best_) best_ = evaluated.step_seconds;
      if (choice.chunks == 1) {
        const double seconds = evaluated.step_seconds / MinRounds(choice);
        const auto [known, is_new] = whole_stages_.try_emplace(PipelineOf(choice), seconds);
        known->second = std::min(known->second, seconds);
      }
    }
    done_.push_back(std::move(evaluated));
    return &done_.back();
  }

  // What plans that differ in schedule, chunks, ZeRO and recomputation alone have in common.
  using Pipeline = std::tuple<std::string, std::vector<int>, int>;
  static Pipeline PipelineOf(const PlanChoice& choice) {
    return {choice.mesh.ToString(), choice.workers, choice.micro_batches};
  }

  // Whether an interleaved pipeline is worth evaluating: the same pipeline of whole stages fits
  // and, with the shorter bubble, would be within a fifth of the best. This is a heuristic, not a
  // bound. Interleaving reduces idle time, but it adds communication and memory.
  bool IsPromising(const PlanChoice& interleaved) const {
    const auto whole = whole_stages_.find(PipelineOf(interleaved));
    return whole != whole_stages_.end() &&
           whole->second * MinRounds(interleaved) < kAboutAsGood * best_;
  }

  // If the best few plans are simulated exactly, plans that are almost as good are evaluated too.
  absl::StatusOr<double> WantedBound(const PlanChoice& choice) {
    WEFT_ASSIGN_OR_RETURN(const double close, evaluator_.CloseBound(choice));
    if (!evaluator_.IsSimulated(choice.mesh)) return close;
    return close / kAboutAsGood;
  }

  // Close bounds are made for those only whose first bound is below the best so far.
  absl::Status Walk() {
    while (!heap_.empty()) {
      Bounded next = heap_.top();
      heap_.pop();
      // Of each mesh one choice is looked at all the same: what it takes is said.
      const bool is_wanted = next.is_close && !is_known_[next.mesh];
      if (best_ > 0 && next.bound >= best_) {
        fits_[next.mesh] = true;  // it cannot be the best, fitting or not
        if (!is_wanted) continue;
      }
      if (IsFull()) continue;
      if (!next.is_close) {
        if (evaluator_.CannotFit(next.choice) && is_known_[next.mesh]) continue;
        WEFT_ASSIGN_OR_RETURN(const double close, WantedBound(next.choice));
        next.bound = std::max(next.bound, close);
        next.is_close = true;
        heap_.push(std::move(next));
        continue;
      }
      is_known_[next.mesh] = true;
      WEFT_ASSIGN_OR_RETURN(const EvaluatedChoice* const evaluated, Evaluate(next.choice));
      if (IsPlan(*evaluated)) fits_[next.mesh] = true;
    }
    return absl::OkStatus();
  }

  static bool IsPlan(const EvaluatedChoice& one) { return one.fits && one.refusal.empty(); }

  std::vector<EvaluatedChoice> BestOfMeshes() const {
    std::vector<const EvaluatedChoice*> plans;
    for (const EvaluatedChoice& one : done_) {
      if (IsPlan(one)) plans.push_back(&one);
    }
    std::stable_sort(plans.begin(), plans.end(), [](const auto* a, const auto* b) {
      return a->step_seconds < b->step_seconds;
    });
    std::set<std::pair<std::string, size_t>> meshes;
    std::vector<EvaluatedChoice> best;
    for (const EvaluatedChoice* one : plans) {
      if (best.size() == kRefined) break;
      const PlanChoice& choice = one->choice;
      if (!meshes.insert({choice.mesh.ToString(), choice.workers.size()}).second) continue;
      best.push_back(*one);
    }
    return best;
  }

  // Goes to the best neighbour while it is better.
  absl::Status Refine(EvaluatedChoice at) {
    std::set<std::string> seen;  // of this mesh
    for (const EvaluatedChoice& one : done_) {
      if (one.choice.workers == at.choice.workers) seen.insert(ParallelText(one.choice));
    }
    for (int round = 0; round < kRounds; ++round) {
      EvaluatedChoice best = at;
      for (const PlanChoice& neighbour : space_.Neighbours(at.choice)) {
        if (IsFull()) return absl::OkStatus();
        if (!seen.insert(ParallelText(neighbour)).second || evaluator_.CannotFit(neighbour)) {
          continue;
        }
        // Without a pipeline there are few, and nothing is taken for granted: their smaller
        // micro-batches may be faster, and what is best so far may be a pipeline, which coarse
        // estimates make too fast.
        const bool is_plain = neighbour.mesh.pipeline == 1;
        if (!is_plain && evaluator_.LowerBound(neighbour) >= best_) continue;
        WEFT_ASSIGN_OR_RETURN(const double bound,
                              is_plain ? WantedBound(neighbour) : evaluator_.CloseBound(neighbour));
        if (bound >= best_) continue;
        WEFT_ASSIGN_OR_RETURN(const EvaluatedChoice* const evaluated, Evaluate(neighbour));
        if (IsPlan(*evaluated) && evaluated->step_seconds < best.step_seconds) best = *evaluated;
      }
      if (best.choice == at.choice) break;
      at = std::move(best);
    }
    return absl::OkStatus();
  }

  const PlanSpace& space_;
  PlanEvaluator& evaluator_;
  std::priority_queue<Bounded> heap_;
  int64_t number_ = 0;
  std::vector<bool> fits_;                            // by mesh
  std::vector<bool> is_known_;                        // by mesh: a choice was looked at
  double best_ = 0;                                   // seconds; 0: nothing fits yet
  std::vector<std::vector<PlanChoice>> interleaved_;  // by mesh: those of several chunks
  std::map<Pipeline, double> whole_stages_;           // the least seconds of a round
  std::vector<EvaluatedChoice> done_;
};

class BoundedSearch final : public SearchStrategy {
 public:
  absl::StatusOr<std::vector<EvaluatedChoice>> Run(const PlanSpace& space,
                                                   PlanEvaluator& evaluator) const override {
    return BoundedWalk(space, evaluator).Run();
  }
};

std::vector<PlanChoice> AllVariants(const PlanSpace& space, const PlanChoice& mesh) {
  std::vector<PlanChoice> all = space.FastVariants(mesh);
  for (PlanChoice& choice : space.SmallVariants(mesh)) {
    if (std::find(all.begin(), all.end(), choice) == all.end()) all.push_back(std::move(choice));
  }
  return all;
}

class ExhaustiveSearch final : public SearchStrategy {
 public:
  absl::StatusOr<std::vector<EvaluatedChoice>> Run(const PlanSpace& space,
                                                   PlanEvaluator& evaluator) const override {
    std::vector<EvaluatedChoice> done;
    for (const PlanChoice& mesh : space.meshes()) {
      for (const PlanChoice& choice : AllVariants(space, mesh)) {
        WEFT_ASSIGN_OR_RETURN(EvaluatedChoice evaluated,
                              evaluator.Evaluate(choice, /*exhaustive=*/true));
        done.push_back(std::move(evaluated));
      }
    }
    return done;
  }
};

// Moves between neighbours: another variant of the mesh, or a variant of another mesh. A worse one
// is taken with a probability that falls as the walk cools down.
class AnnealingSearch final : public SearchStrategy {
 public:
  absl::StatusOr<std::vector<EvaluatedChoice>> Run(const PlanSpace& space,
                                                   PlanEvaluator& evaluator) const override {
    std::mt19937_64 random(20240601);
    const auto pick = [&](size_t count) { return static_cast<size_t>(random() % count); };
    std::vector<EvaluatedChoice> done;
    if (space.meshes().empty()) return done;
    size_t mesh = 0;
    double current = 0;
    for (int step = 0; step < kSteps; ++step) {
      const bool stays = step > 0 && pick(2) == 0;
      const size_t next_mesh = stays ? mesh : pick(space.meshes().size());
      const auto variants = AllVariants(space, space.meshes()[next_mesh]);
      if (variants.empty()) continue;
      WEFT_ASSIGN_OR_RETURN(EvaluatedChoice next,
                            evaluator.Evaluate(variants[pick(variants.size())]));
      if (!next.refusal.empty()) continue;
      // What does not fit is as bad as many times slower.
      const double seconds = next.step_seconds * (next.fits ? 1 : 10);
      const double heat = 0.5 * (1 - static_cast<double>(step) / kSteps) + 1e-3;
      const double worse = current == 0 ? 0 : seconds / current - 1;
      const double chance = static_cast<double>(random() >> 11) * 0x1p-53;
      if (worse <= 0 || chance < std::exp(-worse / heat)) {
        mesh = next_mesh;
        current = seconds;
      }
      done.push_back(std::move(next));
    }
    return done;
  }

 private:
  static constexpr int kSteps = 300;
};

}  // namespace

std::vector<std::string> SearchStrategyNames() { return {"dp", "anneal", "exhaustive"}; }

absl::StatusOr<std::unique_ptr<SearchStrategy>> NewSearchStrategy(const std::string& name) {
  // They differ in what the evaluator does.
  if (name == "dp") return std::make_unique<BoundedSearch>();
  if (name == "anneal") return std::make_unique<AnnealingSearch>();
  if (name == "exhaustive") return std::make_unique<ExhaustiveSearch>();
  return absl::InvalidArgumentError(absl::StrCat("there is no search '", name, "'; there are ",
                                                 absl::StrJoin(SearchStrategyNames(), ", ")));
}

}  // namespace weft
