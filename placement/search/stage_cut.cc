#include "placement/search/stage_cut.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

namespace weft {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

double SlowestSeconds(const StageCosts& stage_costs, const StagePlace& place, int first, int last) {
  double seconds = 0;
  for (const int device : place.devices) {
    seconds = std::max(seconds, stage_costs.MicroBatchSeconds(first, last, device));
  }
  return seconds;
}

// What the stage does once per step.
double OnceSeconds(const StageCosts& stage_costs, const StagePlace& place, int first, int last) {
  const double bytes = static_cast<double>(stage_costs.GradientBytes(first, last));
  double once = 0;
  for (const int device : place.devices) {
    const StageSeconds seconds = stage_costs.Seconds(first, last, device);
    const double hidden = seconds.backward + seconds.weight_gradient;
    once =
        std::max(once, seconds.update + std::max(0.0, place.sum_seconds_per_byte * bytes - hidden));
  }
  return once + place.exposed_seconds_per_byte * bytes;
}

// Seconds of a micro-batch.
struct PlaceSeconds {
  double stage = 0;
  double whole = 0;  // of all units at the place
};

StageCost CostOf(const StageCosts& stage_costs, const StagePlace& place, int micro_batches,
                 int first, int last, const PlaceSeconds& seconds) {
  const double once = place.counts_once ? OnceSeconds(stage_costs, place, first, last) : 0;
  double pace = seconds.stage;
  StageCost cost;
  cost.passing = seconds.stage;
  if (first == 0) {
    cost.passing += once;
  } else {
    const PlanningCut& cut = stage_costs.Cut(first);
    const double forward = place.link_seconds_per_byte * static_cast<double>(cut.forward_bytes);
    const double backward = place.link_seconds_per_byte * static_cast<double>(cut.backward_bytes);
    cost.passing += forward + backward;
    pace = std::max({pace, forward, backward});
  }
  cost.repeated =
      std::max((micro_batches - 1) * pace, micro_batches * seconds.stage + once - seconds.whole);
  return cost;
}

// The first stages up to a place.
struct Partial {
  double passing = 0;
  double repeated = 0;
  int begin = 0;      // of the last stage: a place
  int previous = -1;  // of the partial cuts up to `begin`
  double seconds() const { return passing + repeated; }
};

// Partial cuts of which none is better than another in both sums: those that are longer in one are
// shorter in the other.
using Frontier = std::vector<Partial>;

void Add(const Partial& one, Frontier& frontier) {
  bool is_best = false;  // of some
  for (const Partial& other : frontier) {
    if (other.passing <= one.passing && other.repeated <= one.repeated) return;
    is_best |= one.passing <= other.passing && one.repeated <= other.repeated;
  }
  if (is_best) {
    std::erase_if(frontier, [&](const Partial& other) {
      return one.passing <= other.passing && one.repeated <= other.repeated;
    });
  }
  frontier.push_back(one);
}

class StageCutter {
 public:
  StageCutter(const StageCosts& stage_costs, const std::vector<StagePlace>& places,
              int micro_batches)
      : stage_costs_(stage_costs),
        places_(places),
        micro_batches_(micro_batches),
        units_(stage_costs.units()),
        stages_(static_cast<int>(places.size())) {}

  StageCut Run() {
    if (stages_ > units_) return {};
    for (const StagePlace& place : places_) {
      whole_.push_back(SlowestSeconds(stage_costs_, place, 0, units_));
    }
    min_passing_ = MinPassing();
    const std::vector<int> points = GoodPoints();
    const StageCut rough = CutRoughly(points);
    SetPoints(points);
    if (!rough.begins.empty()) return CutNoLonger(rough.step_seconds);
    StageCut cut = CutFromShort();
    if (!cut.begins.empty() || static_cast<int>(points.size()) == units_ + 1) return cut;
    std::vector<int> all(units_ + 1);
    std::iota(all.begin(), all.end(), 0);
    SetPoints(std::move(all));
    return CutFromShort();
  }

 private:
  static constexpr double kLoose = 1.1;
  static constexpr double kUnknown = -1;
  static constexpr double kMore = 3;
  static constexpr double kRounding = 1e-9;
  static constexpr int kRoughPieces = 3;  // of a stage
  // Places between units that are so near to one another, in parts of an even stage's seconds and
  // bytes, that it does not matter which is taken but for what crosses.
  static constexpr double kNear = 0.02;

  // Seconds of a micro-batch from each unit on, each unit where it is fastest.
  std::vector<double> MinPassing() const {
    std::vector<double> min_passing(units_ + 1, 0);
    for (int unit = units_ - 1; unit >= 0; --unit) {
      double fastest = kNever;
      for (int stage = 0; stage < stages_; ++stage) {
        if (stage > 0 && places_[stage].devices == places_[stage - 1].devices) continue;
        fastest = std::min(fastest, SlowestSeconds(stage_costs_, places_[stage], unit, unit + 1));
      }
      min_passing[unit] = min_passing[unit + 1] + fastest;
    }
    return min_passing;
  }

  // Where stages may begin: not where more crosses than very near to it.
  std::vector<int> GoodPoints() const {
    const auto bytes = [&](int first, int last) {
      const StageMemory memory = stage_costs_.Memory(first, last, 1);
      return static_cast<double>(memory.total() - memory.working);
    };
    const double seconds_nearby = kNear * whole_.front() / stages_;
    const double bytes_nearby = kNear * bytes(0, units_) / stages_;
    std::vector<int> points = {0};
    for (int unit = 1; unit < units_; ++unit) {
      const auto is_better = [&](int other) {
        const PlanningCut& a = stage_costs_.Cut(other);
        const PlanningCut& b = stage_costs_.Cut(unit);
        return a.forward_bytes <= b.forward_bytes && a.backward_bytes <= b.backward_bytes;
      };
      const auto is_near = [&](int first, int last) {
        return SlowestSeconds(stage_costs_, places_.front(), first, last) <= seconds_nearby &&
               bytes(first, last) <= bytes_nearby;
      };
      bool is_good =
          points.back() == 0 || !is_better(points.back()) || !is_near(points.back(), unit);
      for (int next = unit + 1; is_good && next < units_ && is_near(unit, next); ++next) {
        is_good = !is_better(next);
      }
      if (is_good) points.push_back(unit);
    }
    points.push_back(units_);
    return points;
  }

  void SetPoints(std::vector<int> points) {
    points_ = std::move(points);
    FindClasses();
    best_.assign(stages_ + 1, std::vector<Frontier>(pieces() + 1));
  }

  // The best cut at the point of each few where least crosses: the best of all cuts is no longer.
  // None where it would take as long to find as that one.
  StageCut CutRoughly(const std::vector<int>& points) {
    const int each = (static_cast<int>(points.size()) - 1) / (kRoughPieces * stages_);
    if (each < 2) return {};
    std::vector<int> few = {0};
    const auto bytes = [&](int unit) {
      return stage_costs_.Cut(unit).forward_bytes + stage_costs_.Cut(unit).backward_bytes;
    };
    for (size_t first = 1; first + 1 < points.size(); first += each) {
      const size_t last = std::min(first + each, points.size() - 1);
      few.push_back(
          *std::min_element(points.begin() + first, points.begin() + last,
                            [&](int one, int other) { return bytes(one) < bytes(other); }));
    }
    few.push_back(units_);
    SetPoints(std::move(few));
    return CutFromShort();
  }

  StageCut CutNoLonger(double seconds) {
    const double longest = seconds * (1 + kRounding);
    return CutWithin(longest - min_passing_.front(), longest);
  }

  // Begins with stages as short as they may be.
  StageCut CutFromShort() {
    if (stages_ > pieces()) return {};
    double speed = 0;
    for (const double seconds : whole_) speed += 1 / std::max(1e-12, seconds);
    // As if units could be divided at will, and some more.
    double max_repeated = kLoose * (micro_batches_ - 1) / speed;
    const double passing = min_passing_.front();
    while (true) {
      const StageCut cut = CutWithin(max_repeated, kNever);
      if (cut.begins.empty()) {
        if (max_repeated == kNever) return {};
        max_repeated = max_repeated > 0 && max_repeated < passing * micro_batches_
                           ? kMore * max_repeated
                           : kNever;
        continue;
      }
      // A cut with a longer stage is longer than this one.
      return cut.step_seconds <= max_repeated + passing ? cut : CutNoLonger(cut.step_seconds);
    }
  }

  int pieces() const { return static_cast<int>(points_.size()) - 1; }

  // Places that are alike but for their memory share what stages cost.
  void FindClasses() {
    class_of_.clear();
    for (int stage = 0; stage < stages_; ++stage) {
      int like = 0;
      while (like < stage && !AreAlike(places_[like], places_[stage])) ++like;
      class_of_.push_back(like);
    }
    const size_t size = points_.size();
    costs_.assign(stages_, {});
    for (int stage = 0; stage < stages_; ++stage) {
      if (class_of_[stage] == stage) costs_[stage].assign(size * size, {kUnknown, 0});
    }
  }

  static bool AreAlike(const StagePlace& a, const StagePlace& b) {
    return a.devices == b.devices && a.link_seconds_per_byte == b.link_seconds_per_byte &&
           a.sum_seconds_per_byte == b.sum_seconds_per_byte &&
           a.exposed_seconds_per_byte == b.exposed_seconds_per_byte;
  }

  // Of a stage between two places.
  const StageCost& Cost(int stage, int first, int last, double seconds) {
    StageCost& cost = costs_[class_of_[stage]][last * points_.size() + first];
    if (cost.passing == kUnknown) {
      cost = CostOf(stage_costs_, places_[stage], micro_batches_, points_[first], points_[last],
                    {seconds, whole_[stage]});
    }
    return cost;
  }

  // The best of those cuts of which no stage repeats longer than `max_repeated` and that take no
  // longer than `longest`. From here on places are indices into points_.
  StageCut CutWithin(double max_repeated, double longest) {
    for (std::vector<Frontier>& of_stage : best_) {
      for (Frontier& frontier : of_stage) frontier.clear();
    }
    best_[0][0].push_back({});
    const std::vector<int> min_begins = MinBegins(max_repeated);
    int reached = 0;  // no stage so far ends later
    for (int stage = 0; stage < stages_; ++stage) {
      const int begin = reached;
      for (int last = std::max(min_begins[stage + 1], min_begins[stage] + 1);
           last <= pieces() - (stages_ - 1 - stage); ++last) {
        AddStages(stage, last, min_begins[stage], std::min(begin, last - 1),
                  {max_repeated, longest});
        if (!best_[stage + 1][last].empty()) reached = last;
      }
    }
    return Traced();
  }

  double Seconds(int stage, int first, int last) const {
    return SlowestSeconds(stage_costs_, places_[stage], points_[first], points_[last]);
  }

  // The first place where each stage can begin so that it and those after it have all the rest.
  std::vector<int> MinBegins(double max_repeated) const {
    std::vector<int> begins(stages_ + 1, pieces());
    for (int stage = stages_ - 1; stage >= 0; --stage) {
      const int last = begins[stage + 1];
      int first = last - 1;
      while (first > stage &&
             (micro_batches_ - 1) * Seconds(stage, first - 1, last) <= max_repeated) {
        --first;
      }
      begins[stage] = std::max(first, stage);
    }
    return begins;
  }

  struct Limits {
    double repeated = 0;
    double step = 0;
  };

  // All stages that end at `last` and begin in [least, max_first].
  void AddStages(int stage, int last, int min_first, int max_first, const Limits& limits) {
    const StagePlace& place = places_[stage];
    const double rest = min_passing_[points_[last]];
    for (int first = max_first; first >= min_first; --first) {
      // More units only take longer.
      const double seconds = Seconds(stage, first, last);
      if ((micro_batches_ - 1) * seconds > limits.repeated) break;
      const Frontier& before = best_[stage][first];
      if (before.empty()) continue;
      if (!StageFits(stage_costs_, place, points_[first], points_[last])) {
        // And need more, but for the last stage: what little of the loss it has may be too large a
        // segment.
        if (stage + 1 == stages_) continue;
        break;
      }
      const StageCost& cost = Cost(stage, first, last, seconds);
      if (cost.repeated > limits.repeated) continue;
      for (int i = 0; i < static_cast<int>(before.size()); ++i) {
        const Partial next = {before[i].passing + cost.passing,
                              std::max(before[i].repeated, cost.repeated), first, i};
        if (next.seconds() + rest <= limits.step) Add(next, best_[stage + 1][last]);
      }
    }
  }

  StageCut Traced() const {
    const Frontier& all = best_[stages_][pieces()];
    if (all.empty()) return {};
    const Partial* at = &*std::min_element(
        all.begin(), all.end(),
        [](const Partial& a, const Partial& b) { return a.seconds() < b.seconds(); });
    StageCut cut;
    cut.step_seconds = at->seconds();
    cut.begins.assign(stages_ + 1, units_);
    for (int stage = stages_ - 1; stage >= 0; --stage) {
      cut.begins[stage] = points_[at->begin];
      at = &best_[stage][at->begin][at->previous];
    }
    return cut;
  }

  const StageCosts& stage_costs_;
  const std::vector<StagePlace>& places_;
  const int micro_batches_;
  const int units_;
  const int stages_;
  std::vector<double> whole_;  // by place
  std::vector<double> min_passing_;
  std::vector<int> points_;    // units that a stage may begin with; 0 and units_
  std::vector<int> class_of_;  // the first place that is alike, by place of the pipeline
  std::vector<std::vector<StageCost>> costs_;  // of each class: by last and first place
  std::vector<std::vector<Frontier>> best_;    // by stages, then places
};

void TryAll(const StageCosts& stage_costs, const std::vector<StagePlace>& places, int micro_batches,
            std::vector<int>& begins, Partial so_far, StageCut& best) {
  const size_t stage = begins.size() - 1;
  const int first = begins.back();
  const int stages = static_cast<int>(places.size());
  const bool is_last = stage + 1 == places.size();
  const int max_last = stage_costs.units() - (stages - 1 - static_cast<int>(stage));
  for (int last = is_last ? stage_costs.units() : first + 1; last <= max_last; ++last) {
    if (!StageFits(stage_costs, places[stage], first, last)) continue;
    const StageCost cost = CostOfStage(stage_costs, places[stage], micro_batches, first, last);
    Partial next = so_far;
    next.passing += cost.passing;
    next.repeated = std::max(next.repeated, cost.repeated);
    begins.push_back(last);
    if (!is_last) {
      TryAll(stage_costs, places, micro_batches, begins, next, best);
    } else if (best.begins.empty() || next.seconds() < best.step_seconds) {
      best = {begins, next.seconds()};
    }
    begins.pop_back();
  }
}

}  // namespace

StageCost CostOfStage(const StageCosts& stage_costs, const StagePlace& place, int micro_batches,
                      int first, int last) {
  return CostOf(stage_costs, place, micro_batches, first, last,
                {SlowestSeconds(stage_costs, place, first, last),
                 SlowestSeconds(stage_costs, place, 0, stage_costs.units())});
}

bool StageFits(const StageCosts& stage_costs, const StagePlace& place, int first, int last) {
  return place.memory_limit == 0 ||
         stage_costs.Memory(first, last, place.in_flight).total() <= place.memory_limit;
}

StageCut CutStages(const StageCosts& stage_costs, const std::vector<StagePlace>& places,
                   int micro_batches) {
  return StageCutter(stage_costs, places, micro_batches).Run();
}

StageCut CutStagesExhaustively(const StageCosts& stage_costs, const std::vector<StagePlace>& places,
                               int micro_batches) {
  if (static_cast<int>(places.size()) > stage_costs.units()) return {};
  std::vector<int> begins = {0};
  StageCut best;
  TryAll(stage_costs, places, micro_batches, begins, {}, best);
  return best;
}

}  // namespace weft
