// SPDX-License-Identifier: Apache-2.0
//
// JSON of API messages for people's scripts: field names as in the proto, every field present, 64-bit integers as
// numbers (protobuf's own JSON makes them strings), enum values in lower case without their type's prefix ("observe"),
// unset messages and unset optional fields as null, numbers that are not finite as null.
#pragma once

#include <nlohmann/json.hpp>

#include "google/protobuf/message.h"

namespace cw::api {

nlohmann::ordered_json ToJson(const google::protobuf::Message& message);

}  // namespace cw::api
