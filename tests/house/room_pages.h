// What the README of a folder must say.
#ifndef WEFT_TESTS_HOUSE_ROOM_PAGES_H_
#define WEFT_TESTS_HOUSE_ROOM_PAGES_H_

#include <string>
#include <string_view>
#include <vector>

namespace weft::testing {

// The classes and structs that a header of ours defines, not inside others.
int CountTypes(std::string_view header);

// A folder with code, as far as its page depends on it.
struct RoomFacts {
  bool is_room = true;      // Not a whole folder: its page is one that can be read at a glance.
  bool is_testing = false;  // Fakes and helpers of tests: two lines do.
  bool has_build_file = true;
  int types = 0;  // Of its headers.
};

// What the page lacks, one text each: a title; a purpose that is a sentence of its own; for types,
// a table or a list; for five of them and more, laws or what the room does not do; without a BUILD
// file, the reason ("BUILD file"). Also where it is too long.
std::vector<std::string> CheckPage(const std::string& path, std::string_view text,
                                   const RoomFacts& facts);

// The first paragraph after the title, as one line.
std::string PurposeOf(std::string_view text);

}  // namespace weft::testing

#endif  // WEFT_TESTS_HOUSE_ROOM_PAGES_H_
