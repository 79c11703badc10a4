#include "placement/search/search_strategy.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

struct Bounded {
  PlanChoice choice;
  double bound = 0;
  size_t mesh = 0;
};

// The best-first walk of "dp".
class BoundedWalk {
 public:
  BoundedWalk(const PlanSpace& space, PlanEvaluator& evaluator)
      : space_(space), evaluator_(evaluator), fits_(space.meshes().size()) {}

  absl::StatusOr<std::vector<EvaluatedChoice>> Run() {
    std::vector<Bounded> fast;
    for (size_t mesh = 0; mesh < space_.meshes().size(); ++mesh) {
      Add(space_.FastVariants(space_.meshes()[mesh]), mesh, fast);
    }
    WEFT_RETURN_IF_ERROR(Walk(std::move(fast)));
    std::vector<Bounded> small;
    for (size_t mesh = 0; mesh < space_.meshes().size(); ++mesh) {
      if (!fits_[mesh]) Add(space_.SmallVariants(space_.meshes()[mesh]), mesh, small);
    }
    WEFT_RETURN_IF_ERROR(Walk(std::move(small)));
    return std::move(done_);
  }

 private:
  void Add(std::vector<PlanChoice> choices, size_t mesh, std::vector<Bounded>& list) const {
    for (PlanChoice& choice : choices) {
      const double bound = evaluator_.LowerBound(choice);
      list.push_back({std::move(choice), bound, mesh});
    }
  }

  absl::Status Walk(std::vector<Bounded> list) {
    std::stable_sort(list.begin(), list.end(),
                     [](const Bounded& a, const Bounded& b) { return a.bound < b.bound; });
    for (const Bounded& next : list) {
      if (best_ > 0 && next.bound >= best_) {
        fits_[next.mesh] = true;  // it cannot be the best, fitting or not
        continue;
      }
      if (evaluator_.evaluated() >= evaluator_.options().most_evaluations) break;
      WEFT_ASSIGN_OR_RETURN(EvaluatedChoice evaluated, evaluator_.Evaluate(next.choice));
      if (evaluated.fits && evaluated.refusal.empty()) {
        fits_[next.mesh] = true;
        if (best_ == 0 || evaluated.step_seconds < best_) best_ = evaluated.step_seconds;
      }
      done_.push_back(std::move(evaluated));
    }
    return absl::OkStatus();
  }

  const PlanSpace& space_;
  PlanEvaluator& evaluator_;
  std::vector<bool> fits_;  // by mesh
  double best_ = 0;         // seconds; 0: nothing fits yet
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
  if (name == "dp") return std::make_unique<BoundedSearch>();
  if (name == "anneal") return std::make_unique<AnnealingSearch>();
  if (name == "exhaustive") return std::make_unique<ExhaustiveSearch>();
  return absl::InvalidArgumentError(absl::StrCat("there is no search '", name, "'; there are ",
                                                 absl::StrJoin(SearchStrategyNames(), ", ")));
}

}  // namespace weft
