// How a plan's GPUs reach each other: by NCCL, or through their hosts.
#ifndef WEFT_TOOLS_REPORTS_CARD_WAYS_H_
#define WEFT_TOOLS_REPORTS_CARD_WAYS_H_

#include <string>

#include "distributed/nccl/planned_cards.h"
#include "nlohmann/json.hpp"

namespace weft {

// A line for people, with its end; "" where GPUs have nothing for others: "between GPUs:
// collectives of 1 group and sends of 2 pairs by NCCL; sends of 1 pair through the host (worker:0
// receives in another order than worker:1 sends)".
std::string CardWaysText(const PlannedCards& cards);

// Each group and pair with a GPU in it, those by NCCL first. What one rank sends to another may go
// both ways, and is then there twice; `channels` counts values, not messages.
// [{"what": "collectives", "ranks": [0, 1], "way": "nccl"},
//  {"what": "sends", "ranks": [1, 0], "channels": 1, "way": "host", "host_because": "..."}]
nlohmann::ordered_json CardWaysJson(const PlannedCards& cards);

}  // namespace weft

#endif  // WEFT_TOOLS_REPORTS_CARD_WAYS_H_
