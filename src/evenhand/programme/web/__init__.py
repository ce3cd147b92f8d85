"""The page for planners: a programme in a browser, rendered on the server, with small scripts of its own.

    today_view, today_routes    today: conditions, plan, changes, records
    *_page                      arms; fairness and what-if; the model
    auth_routes                 signing in and out, files
    layout, forms, paged_table, render
                                parts that several views share
    templates                   HTML; every text is escaped
    static                      style sheet and script; everything works without the script

The content security policy allows no script, no style and no handler within the HTML.
"""
